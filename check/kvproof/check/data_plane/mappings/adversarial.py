"""Mappings drawn to break movers: nothing, everything, any order, long runs, no runs, the ends of the pools.

A right executor must be able to do every step: no target occurs twice in a step, no target of a copy is also a source,
and no swap in overwrites a block that is still to be swapped out.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from kvproof.check.data_plane.steps.moves import Moves, Pair, Step, Write

NUM_ORDERED_STEPS = 4
NUM_MIXED_STEPS = 12


class Pools(NamedTuple):
    """The sizes of the pools, in blocks, and of a block, in tokens."""

    num_gpu_blocks: int
    num_cpu_blocks: int
    block_size: int

    @property
    def num_common(self) -> int:
        """Blocks of the smaller pool."""
        return min(self.num_gpu_blocks, self.num_cpu_blocks)


def empty(random: Random, pools: Pools) -> list[Step]:
    """One step with three empty lists: nothing may change."""
    return [Step()]


def one(random: Random, pools: Pools) -> list[Step]:
    """One pair of each list, each in its own step."""
    gpu, cpu = random.randrange(pools.num_gpu_blocks), random.randrange(pools.num_cpu_blocks)
    source, target = random.sample(range(pools.num_gpu_blocks), 2)
    return [
        Step(Moves(swap_out=((gpu, cpu),))),
        Step(Moves(swap_in=((cpu, (gpu + 1) % pools.num_gpu_blocks),))),
        Step(Moves(copy=((source, target),))),
    ]


def everything(random: Random, pools: Pools) -> list[Step]:
    """As many blocks as possible in each direction, then half of the GPU pool to the other half."""
    pairs = tuple((block, block) for block in range(pools.num_common))
    half = pools.num_gpu_blocks // 2
    copies = tuple((block, block + half) for block in range(half))
    return [
        Step(Moves(swap_out=pairs), writes=_rewritten(range(pools.num_gpu_blocks), pools)),
        Step(Moves(swap_in=pairs)),
        Step(Moves(copy=copies)),
    ]


def permutation(random: Random, pools: Pools) -> list[Step]:
    """Every block to a random place, with the pairs in random order."""
    steps = []
    for _ in range(2):
        out = _any_pairs(random, pools.num_gpu_blocks, pools.num_cpu_blocks)
        back = _any_pairs(random, pools.num_cpu_blocks, pools.num_gpu_blocks)
        blocks = random.sample(range(pools.num_gpu_blocks), pools.num_gpu_blocks)
        half = len(blocks) // 2
        steps += [
            Step(Moves(swap_out=out), writes=_rewritten(blocks[:half], pools)),
            Step(Moves(swap_in=back)),
            Step(Moves(copy=tuple(zip(blocks[:half], blocks[half:], strict=False)))),
        ]
    return steps


def long_runs(random: Random, pools: Pools) -> list[Step]:
    """A few runs as long as possible: shifted by one block, in reverse order, and shuffled."""
    length = max(1, pools.num_common - 1)
    shifted = [(block, block + 1) for block in range(min(length, pools.num_cpu_blocks - 1))]
    back = [(block + 1, block) for block in range(min(length, pools.num_cpu_blocks - 1))]
    third = max(1, pools.num_gpu_blocks // 3)
    copies = [(block, block + third) for block in range(third)]
    random.shuffle(copies)
    return [
        Step(Moves(swap_out=tuple(shifted)), writes=_rewritten(range(pools.num_gpu_blocks), pools)),
        Step(Moves(swap_in=tuple(reversed(back)))),
        Step(Moves(copy=tuple(copies))),
    ]


def fragments(random: Random, pools: Pools) -> list[Step]:
    """No runs: every second block, and targets that descend as sources ascend."""
    evens = list(range(0, pools.num_common, 2))
    out = tuple(zip(evens, reversed(evens), strict=True))
    down = tuple((block, pools.num_common - 1 - block) for block in range(pools.num_common))
    copies = tuple((block, block + 1) for block in range(0, pools.num_gpu_blocks - 1, 2))
    return [
        Step(Moves(swap_out=out), writes=_rewritten(evens, pools)),
        Step(Moves(swap_in=down)),
        Step(Moves(copy=copies)),
    ]


def fan_out(random: Random, pools: Pools) -> list[Step]:
    """One source to many targets, as when the beams of a group diverge."""
    source = random.randrange(pools.num_gpu_blocks)
    copies = tuple((source, block) for block in range(pools.num_gpu_blocks) if block != source)
    out = tuple((source, block) for block in range(pools.num_cpu_blocks))
    back = tuple((pools.num_cpu_blocks - 1, block) for block in range(pools.num_gpu_blocks))
    return [Step(Moves(copy=copies)), Step(Moves(swap_out=out)), Step(Moves(swap_in=back))]


def ends(random: Random, pools: Pools) -> list[Step]:
    """The first and the last block of both pools, next to the guards."""
    last_gpu, last_cpu = pools.num_gpu_blocks - 1, pools.num_cpu_blocks - 1
    out = ((0, last_cpu), (last_gpu, 0)) if last_cpu else ((last_gpu, 0),)
    return [
        Step(Moves(swap_out=out), writes=_rewritten((0, last_gpu), pools)),
        Step(Moves(swap_in=tuple((cpu, last_gpu - gpu) for gpu, cpu in out))),
        Step(Moves(copy=((0, last_gpu),))),
        Step(Moves(copy=((last_gpu, 0),)), writes=_rewritten((last_gpu,), pools)),
    ]


def reuse(random: Random, pools: Pools) -> list[Step]:
    """Blocks that are freed and written again, so that older generations remain in memory."""
    steps = []
    for _ in range(4):
        gpu = random.sample(range(pools.num_gpu_blocks), pools.num_common)
        cpu = random.sample(range(pools.num_cpu_blocks), pools.num_common)
        pairs = tuple(zip(gpu, cpu, strict=True))
        steps += [
            Step(Moves(swap_out=pairs), freed_gpu=tuple(gpu), writes=_rewritten(gpu[: len(gpu) // 2], pools)),
            Step(Moves(swap_in=tuple((c, g) for g, c in pairs)), freed_cpu=tuple(cpu), writes=_rewritten(gpu, pools)),
        ]
    return steps


def mixed(random: Random, pools: Pools) -> list[Step]:
    """All three lists in each step, with freed blocks and partial writes."""
    steps = []
    for _ in range(NUM_MIXED_STEPS):
        gpu = random.sample(range(pools.num_gpu_blocks), pools.num_gpu_blocks)
        cpu = random.sample(range(pools.num_cpu_blocks), pools.num_cpu_blocks)
        num_in, num_out = (random.randint(0, min(len(gpu) // 4, len(cpu) // 2)) for _ in range(2))
        num_copies = random.randint(0, len(gpu) // 4)
        into, saved, copied = gpu[:num_in], gpu[num_in:][:num_out], gpu[num_in + num_out :][:num_copies]
        rest = gpu[num_in + num_out :]
        copies = tuple((random.choice(rest), target) for target in copied)
        copies = tuple(pair for pair in copies if pair[0] not in copied)
        freed = tuple(block for block in saved if random.random() < 0.7)
        some = random.sample(gpu, min(6, len(gpu)))
        writes = tuple(_part_of(random, block, pools) for block in some if block not in freed)
        moves = Moves(
            swap_in=tuple(zip(cpu[:num_in], into, strict=True)),
            swap_out=tuple(zip(saved, cpu[num_in:], strict=False)),
            copy=copies,
        )
        steps.append(Step(moves, freed, tuple(cpu[: num_in // 2]), writes))
    return steps


def worker_order(random: Random, pools: Pools) -> list[Step]:
    """Lists that depend on each other, so that only the worker's order of the three lists gives the right bytes.

    A block that is swapped in is then copied, or swapped out to a block that was read before. A block that is swapped
    out is then overwritten by a copy.
    """
    steps = []
    for _ in range(NUM_ORDERED_STEPS):
        gpu = random.sample(range(pools.num_gpu_blocks), min(5, pools.num_gpu_blocks))
        cpu = random.sample(range(pools.num_cpu_blocks), min(3, pools.num_cpu_blocks))
        if len(gpu) < 5 or len(cpu) < 3:
            return []
        moves = Moves(
            swap_in=((cpu[0], gpu[0]), (cpu[1], gpu[1])),
            swap_out=((gpu[1], cpu[0]), (gpu[2], cpu[2])),
            copy=((gpu[0], gpu[3]), (gpu[4], gpu[2])),
        )
        steps.append(Step(moves, writes=_rewritten(gpu, pools)))
    return steps


KINDS: dict[str, Callable[[Random, Pools], list[Step]]] = {
    "empty": empty,
    "one": one,
    "all": everything,
    "permutation": permutation,
    "long-runs": long_runs,
    "fragments": fragments,
    "fan-out": fan_out,
    "ends": ends,
    "reuse": reuse,
    "mixed": mixed,
    "worker-order": worker_order,
}


def _any_pairs(random: Random, num_sources: int, num_targets: int) -> tuple[Pair, ...]:
    num_pairs = min(num_sources, num_targets)
    sources = random.sample(range(num_sources), num_pairs)
    return tuple(zip(sources, random.sample(range(num_targets), num_pairs), strict=True))


def _rewritten(blocks: range | list[int] | tuple[int, ...], pools: Pools) -> tuple[Write, ...]:
    return tuple(Write(block, 0, pools.block_size) for block in blocks)


def _part_of(random: Random, block: int, pools: Pools) -> Write:
    first = random.randrange(pools.block_size)
    return Write(block, first, random.randint(1, pools.block_size - first))
