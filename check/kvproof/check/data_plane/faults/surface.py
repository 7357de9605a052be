"""What a wrong mover works on: both pools part by part, and one way to move blocks that can be made wrong anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kvproof.check.data_plane.memory.arena import Arena
from kvproof.check.data_plane.memory.layouts import Geometry
from kvproof.check.data_plane.steps.moves import Moves, Pair, PoolId

CopyBlock = Callable[[torch.Tensor, torch.Tensor], object]  # target, source: the words of one part of one block
ORDER = ("swap_in", "swap_out", "copy")
POOLS = {
    "swap_in": (PoolId.CPU, PoolId.GPU),
    "swap_out": (PoolId.GPU, PoolId.CPU),
    "copy": (PoolId.GPU, PoolId.GPU),
}


def plain(target: torch.Tensor, source: torch.Tensor) -> None:
    """As it should be."""
    target.copy_(source)


class Surface:
    """Both memories, and both as they were before the last writes. A part is int64 `[blocks, words]`."""

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
        """The same before the last writes."""
        return self._older[pool][layer * len(self.geometry.parts) + part]

    def places(self) -> list[tuple[int, int]]:
        """Every layer and part."""
        return [(layer, part) for layer in range(self.geometry.num_layers) for part in range(len(self.geometry.parts))]


@dataclass(frozen=True)
class Wrongly:
    """A mover that does as it is told but for what is given here.

    ids: the pair that it moves instead, of list name and pair. layers, parts: where it reads instead. pools: between
    which pools it moves instead. is_skipped: of list name, number of the pair, layer and part.
    """

    ids: Callable[[str, Pair], Pair] = lambda name, pair: pair
    layers: Callable[[int], int] = lambda layer: layer
    parts: Callable[[int], int] = lambda part: part
    pools: Callable[[str], tuple[PoolId, PoolId]] = lambda name: POOLS[name]
    is_skipped: Callable[[str, int, int, int], bool] = lambda name, number, layer, part: False
    copy_block: CopyBlock = field(default=plain)
    order: tuple[str, ...] = ORDER

    def move(self, surface: Surface) -> None:
        """Every list, every pair, every part."""
        for name in self.order:
            source_pool, target_pool = self.pools(name)
            for layer, part in surface.places():
                source = surface.part(source_pool, self.layers(layer) % surface.geometry.num_layers, self.parts(part))
                target = surface.part(target_pool, layer, part)
                for number, pair in enumerate(getattr(surface.moves, name)):
                    if not self.is_skipped(name, number, layer, part):
                        source_block, target_block = self.ids(name, pair)
                        self.copy_block(target[target_block], source[source_block])
