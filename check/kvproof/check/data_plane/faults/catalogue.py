"""The faults, each with the classes that a right diagnosis may give its rows.

They concern layers, keys and values, ids, orders, offsets, lanes, conversions, generations, and memory outside blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kvproof.check.data_plane.memory.layouts import Geometry
from kvproof.check.data_plane.memory.world import Arena
from kvproof.check.data_plane.run.results import WrongClass
from kvproof.check.data_plane.steps.moves import POOLS, Moves, Pair, PoolId, Step, Write
from kvproof.check.protocol.planted_fault import PlantedFault
from kvproof.spec.text.mapping import WORKER_ORDER

CopyBlock = Callable[[torch.Tensor, torch.Tensor], object]  # target, source: the words of one part of one block


def plain(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy the block, without a fault."""
    target.copy_(source)


class Surface:
    """The memory of both pools, now and before the last writes of the model. A part is int64 `[blocks, words]`."""

    def __init__(self, arenas: dict[PoolId, Arena], older: dict[PoolId, torch.Tensor], moves: Moves) -> None:
        self.geometry: Geometry = arenas[PoolId.GPU].geometry
        self.memory = {pool: arena.memory.view(-1) for pool, arena in arenas.items()}
        self.moves = moves
        self._parts = {pool: arena.parts() for pool, arena in arenas.items()}
        self._older = {
            pool: [part.words for part in Arena(self.geometry, pool, arena.device, older[pool]).parts()]
            for pool, arena in arenas.items()
        }

    def part(self, pool: PoolId, layer: int, part: int) -> torch.Tensor:
        """The blocks of one part of one layer."""
        return self._parts[pool][layer * len(self.geometry.parts) + part].words

    def older(self, pool: PoolId, layer: int, part: int) -> torch.Tensor:
        """The same part before the last writes."""
        return self._older[pool][layer * len(self.geometry.parts) + part]

    def places(self) -> list[tuple[int, int]]:
        """All pairs of layer and part."""
        return [(layer, part) for layer in range(self.geometry.num_layers) for part in range(len(self.geometry.parts))]


@dataclass(frozen=True)
class FaultyMover:
    """A mover that is right except for the arguments given here.

    ids: from list name and pair, the pair that it moves instead. layers, parts: from the right layer or part, the one
    that it reads instead. pools: from the list name, the pools between which it moves instead. is_skipped: from list
    name, number of the pair, layer and part, whether the pair is not moved. copy_block: copies one part of one block.
    order: the lists that it executes.
    """

    ids: Callable[[str, Pair], Pair] = lambda name, pair: pair
    layers: Callable[[int], int] = lambda layer: layer
    parts: Callable[[int], int] = lambda part: part
    pools: Callable[[str], tuple[PoolId, PoolId]] = lambda name: POOLS[name]
    is_skipped: Callable[[str, int, int, int], bool] = lambda name, number, layer, part: False
    copy_block: CopyBlock = field(default=plain)
    order: tuple[str, ...] = WORKER_ORDER

    def move(self, surface: Surface) -> None:
        for name in self.order:
            source_pool, target_pool = self.pools(name)
            for layer, part in surface.places():
                source = surface.part(source_pool, self.layers(layer) % surface.geometry.num_layers, self.parts(part))
                target = surface.part(target_pool, layer, part)
                for number, pair in enumerate(getattr(surface.moves, name)):
                    if not self.is_skipped(name, number, layer, part):
                        source_block, target_block = self.ids(name, pair)
                        self.copy_block(target[target_block], source[source_block])


NUM_GPU_BLOCKS, NUM_CPU_BLOCKS = 160, 96
FREED = 40  # a GPU block that is free
# The writes create rows of a second generation; the freed block is poisoned.
BEFORE = Step(freed_gpu=(FREED,), writes=(Write(10, 0, 8), Write(30, 0, 8), Write(120, 2, 3)))
# Block 102 is swapped in and then copied; host block 20 is read by one list and written by the next.
MOVES = Moves(
    swap_in=((3, 100), (7, 101), (8, 102), (95, 103), (20, 104)),
    swap_out=((10, 20), (11, 21), (120, 22), (13, 23)),
    copy=((30, 130), (31, 131), (102, 132), (33, 159), (34, 134)),
)
GPU, CPU = PoolId.GPU, PoolId.CPU


# plant: executes the step with the fault. found_by: the classes that its wrong rows may have.
Fault = PlantedFault[Callable[[Surface], object]]


def _fault(name: str, sentence: str, move: FaultyMover | Callable[[Surface], object], *classes: WrongClass) -> Fault:
    return Fault(name, move.move if isinstance(move, FaultyMover) else move, sentence=sentence, found_by=classes)


def _words(change: Callable[[torch.Tensor], torch.Tensor]) -> FaultyMover:
    """A mover that changes the words of each block that it copies."""
    return FaultyMover(copy_block=lambda target, source: target.copy_(change(source)))


def _lanes(kept: list[int]) -> CopyBlock:
    """Copy only some of the four 16-bit lanes of each word."""

    def copy(target: torch.Tensor, source: torch.Tensor) -> None:
        to, from_ = (words.view(torch.int16).view(-1, 4) for words in (target, source))
        for lane in kept:
            to[:, lane] = from_[:, lane]

    return copy


def _half(target: torch.Tensor, source: torch.Tensor) -> None:
    target[: len(target) // 2].copy_(source[: len(source) // 2])


def _every_second(target: torch.Tensor, source: torch.Tensor) -> None:
    target.view(-1, 4)[::2].copy_(source.view(-1, 4)[::2])


def _heads_first(source: torch.Tensor) -> torch.Tensor:
    """Exchange slots and heads; there are two heads of 16 words."""
    return source.view(-1, 2, 16).transpose(0, 1).reshape(-1)


def _through(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda source: (source.view(torch.bfloat16).to(dtype) * 1.0).to(torch.bfloat16).view(torch.int64)


def _then(change: Callable[[Surface], None]) -> Callable[[Surface], None]:
    """A right move, followed by another change."""

    def move(surface: Surface) -> None:
        FaultyMover().move(surface)
        change(surface)

    return move


def _clear_source(surface: Surface) -> None:
    for place in surface.places():
        surface.part(GPU, *place)[11].zero_()


def _overrun(surface: Surface) -> None:
    surface.part(GPU, 0, 0)[105, :2] = surface.part(CPU, 0, 0)[21, :2]


def _overrun_into_guard(surface: Surface) -> None:
    """Write past the last block of the last layer, where a guard begins."""
    part = surface.part(GPU, surface.geometry.num_layers - 1, 1)
    end = part.storage_offset() - surface.memory[GPU].storage_offset() + part.numel()
    surface.memory[GPU][end : end + 2] = surface.part(GPU, 2, 1)[34, :2]


def _past_the_end(surface: Surface) -> None:
    """Copy block 34 to block 160, which does not exist."""
    part = surface.part(GPU, surface.geometry.num_layers - 1, 1)
    end = part.storage_offset() - surface.memory[GPU].storage_offset() + part.numel()
    surface.memory[GPU][end : end + part.shape[1]] = part[34]


def _flip_bit(surface: Surface) -> None:
    surface.part(GPU, 1, 1)[55, 77] ^= 1 << 13


def _one_element(surface: Surface) -> None:
    surface.part(GPU, 0, 0)[100].view(torch.int16)[5] ^= 1


def _stale(surface: Surface) -> None:
    for place in surface.places():
        surface.part(CPU, *place)[20] = surface.older(GPU, *place)[10]


def _freed(surface: Surface) -> None:
    for place in surface.places():
        surface.part(GPU, *place)[130] = surface.part(GPU, *place)[FREED]


def _ids(change: Callable[[str, int, int], Pair]) -> FaultyMover:
    return FaultyMover(ids=lambda name, pair: change(name, *pair))


def _wrapped(host_id: int) -> int:
    return (host_id + NUM_GPU_BLOCKS) % NUM_CPU_BLOCKS


def _swapped_back(name: str) -> tuple[PoolId, PoolId]:
    return (CPU, GPU) if name in ("swap_in", "swap_out") else (GPU, GPU)


UNMOVED, MOVED, STALE, POISON = WrongClass.UNMOVED, WrongClass.MOVED, WrongClass.STALE, WrongClass.POISON
SHIFTED, TORN, MIXED = WrongClass.SHIFTED, WrongClass.TORN, WrongClass.MIXED
ZERO, ALTERED = WrongClass.ZERO, WrongClass.ALTERED

FAULTS: tuple[Fault, ...] = (
    _fault("nothing-moved", "Nothing is moved.", FaultyMover(order=()), UNMOVED),
    _fault(
        "last-pair-lost",
        "The last pair of a list is not moved.",
        FaultyMover(is_skipped=lambda name, number, layer, part: name == "swap_in" and number == 4),
        UNMOVED,
    ),
    _fault("list-lost", "One of the three lists is not executed.", FaultyMover(order=("swap_in", "copy")), UNMOVED),
    _fault("half-a-block", "Only the first half of a block is copied.", FaultyMover(copy_block=_half), UNMOVED),
    _fault(
        "every-second-piece",
        "Of each 64 bytes only the first 32 are copied.",
        FaultyMover(copy_block=_every_second),
        TORN,
    ),
    _fault(
        "high-lanes-lost", "Only the lower half of each word is copied.", FaultyMover(copy_block=_lanes([0, 1])), MIXED
    ),
    _fault("odd-lanes-lost", "Only every second element is copied.", FaultyMover(copy_block=_lanes([0, 2])), MIXED),
    _fault("key-for-value", "Keys and values are exchanged.", FaultyMover(parts=lambda part: 1 - part), MOVED),
    _fault(
        "value-not-moved",
        "Values are not moved.",
        FaultyMover(is_skipped=lambda name, number, layer, part: part == 1),
        UNMOVED,
    ),
    _fault(
        "last-layer-not-moved",
        "The last layer is not moved.",
        FaultyMover(is_skipped=lambda name, number, layer, part: layer == 2),
        UNMOVED,
    ),
    _fault("next-layer", "Each layer reads from the next layer.", FaultyMover(layers=lambda layer: layer + 1), MOVED),
    _fault(
        "next-layer-block-before",
        "Each layer reads from the next layer, and from the previous block.",
        FaultyMover(ids=lambda name, pair: (pair[0] - 1, pair[1]), layers=lambda layer: layer + 1),
        MOVED,
    ),
    _fault(
        "source-off-by-one",
        "Each source is the block next to the right one.",
        _ids(lambda name, source, target: (source - 1 if name == "swap_in" else source + 1, target)),
        MOVED,
    ),
    _fault(
        "target-off-by-one",
        "Each target of a swap out is the block after the right one.",
        _ids(lambda name, source, target: (source, target + (name == "swap_out"))),
        *(MOVED, UNMOVED),
    ),
    _fault(
        "source-for-target",
        "Swaps out go in the wrong direction.",
        FaultyMover(ids=lambda name, pair: pair[::-1] if name == "swap_out" else pair, pools=_swapped_back),
        *(MOVED, UNMOVED),
    ),
    _fault(
        "source-displaced",
        "Sources of copies are off by 64 blocks.",
        _ids(lambda name, source, target: ((source + 64) % NUM_GPU_BLOCKS if name == "copy" else source, target)),
        MOVED,
    ),
    _fault(
        "absolute-id",
        "Host ids are treated as counting over both pools, and wrap around.",
        _ids(lambda name, source, target: (_wrapped(source) if name == "swap_in" else source, target)),
        MOVED,
    ),
    _fault(
        "wrong-pool",
        "Swaps in read from the GPU pool.",
        FaultyMover(pools=lambda name: (GPU, GPU if name != "swap_out" else CPU)),
        MOVED,
    ),
    _fault(
        "negative-id",
        "A source of -1 wraps around to the last block.",
        _ids(lambda name, source, target: (-1 if (name, source) == ("copy", 30) else source, target)),
        MOVED,
    ),
    _fault(
        "copies-too-early",
        "Copies run before the swaps in that they depend on.",
        FaultyMover(order=("copy", "swap_in", "swap_out")),
        *(MOVED, UNMOVED),
    ),
    _fault(
        "swapped-out-too-early",
        "Swaps out run before swaps in, and overwrite a host block that is still to be read.",
        FaultyMover(order=("swap_out", "swap_in", "copy")),
        MOVED,
    ),
    _fault("heads-for-slots", "Slots and heads are exchanged in each block.", _words(_heads_first), *(MOVED, SHIFTED)),
    _fault(
        "slots-reversed",
        "The slots of each block are in reverse order.",
        _words(lambda source: source.view(8, -1).flip(0).reshape(-1)),
        MOVED,
    ),
    _fault("rotated-by-16", "Blocks arrive rotated by 16 bytes.", _words(lambda words: torch.roll(words, 2)), SHIFTED),
    _fault("rotated-by-256", "Blocks arrive rotated by 256 bytes.", _words(lambda words: torch.roll(words, 32)), MOVED),
    _fault("through-float32", "Elements are multiplied by one in float32.", _words(_through(torch.float32)), ALTERED),
    _fault("through-float16", "Elements are converted to float16 and back.", _words(_through(torch.float16)), ALTERED),
    _fault("zeros", "Targets are cleared.", _words(torch.zeros_like), ZERO),
    _fault("source-cleared", "A source is cleared after the copy.", _then(_clear_source), ZERO),
    _fault("overrun", "16 bytes are written past the end of a block.", _then(_overrun), MOVED),
    _fault("overrun-into-guard", "16 bytes are written past the end of a pool.", _then(_overrun_into_guard), MOVED),
    _fault("past-the-end", "A block is written one past the end of a pool.", _then(_past_the_end), MOVED),
    _fault("bit-flip", "One bit of a block that no pair moves is flipped.", _then(_flip_bit), ALTERED),
    _fault("one-element", "One element differs in its last bit.", _then(_one_element), ALTERED),
    _fault(
        "stale",
        "A block is swapped out with its content from before the last write of the model.",
        _then(_stale),
        STALE,
    ),
    _fault("freed-source", "A free block is copied.", _then(_freed), POISON),
)
