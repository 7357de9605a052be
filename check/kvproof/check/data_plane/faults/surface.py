"""The memory that a faulty mover works on, and a mover in which any part can be made faulty."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kvproof.check.data_plane.memory.arena import Arena
from kvproof.check.data_plane.memory.layouts import Geometry
from kvproof.check.data_plane.steps.moves import POOLS, Moves, Pair, PoolId
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
