"""The work that is timed: mappings of every kind, and the plain copies to which they are compared."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.memory.layouts import Geometry
from kvproof.check.data_plane.memory.world import World
from kvproof.check.data_plane.steps.moves import Moves, Pair, PoolId

VERIFY = "verify"
IN, OUT, WITHIN = "CPU pool to GPU pool", "GPU pool to CPU pool", "within the GPU pool"
COMPARED = "of what is compared"
READ = "plain read"


@dataclass
class Timed:
    """One thing that is timed in every round, and its times.

    works: calls that do the same at different places; the rounds use them in turn. A call in another process returns
    the seconds that it took there (`TakenThere`). reference: the plain copy to which it is compared; for a plain copy,
    itself. host_seconds: the time until the first call returned. seconds: one value per round.
    """

    name: str
    mapping: str
    works: Sequence[Callable[[], object]]
    num_bytes: int
    reference: str
    num_pairs: int = 0
    host_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """The identity among the timed things."""
        return self.name, self.mapping

    def speeds(self) -> NDArray[np.float64]:
        """The speeds in 1e9 bytes per second, one per round."""
        return self.num_bytes / np.array(self.seconds) / 1e9


def mappings(geometry: Geometry, num_pairs: int, num_places: int, seed: int) -> dict[str, list[Moves]]:
    """For each kind of move, `num_places` mappings of `num_pairs` pairs each, at different places of the pools.

    The kinds are swap in, swap out and copy, each with adjacent and with scattered blocks. No target is also a source.
    Each pool must have 2 * num_pairs * num_places blocks.
    """
    drawn = random.Random(seed)
    gpu, cpu = list(range(geometry.num_gpu_blocks)), list(range(geometry.num_cpu_blocks))
    kinds: dict[str, list[Moves]] = {}
    half = num_pairs * num_places
    for order in ("in a row", "scattered"):
        if order == "scattered":
            drawn.shuffle(gpu)
            drawn.shuffle(cpu)
        kinds[f"swap in, {order}"] = [Moves(swap_in=pairs) for pairs in _cut(cpu[:half], gpu[:half], num_pairs)]
        kinds[f"swap out, {order}"] = [Moves(swap_out=pairs) for pairs in _cut(gpu[half:], cpu[half:], num_pairs)]
        kinds[f"copy, {order}"] = [Moves(copy=pairs) for pairs in _cut(gpu[:half], gpu[half:], num_pairs)]
    return kinds


def plain_copies(world: World, num_bytes: int, num_places: int, label: str = "") -> list[Timed]:
    """Plain copies of contiguous bytes in the memory of the pools: the best that the machine can do.

    There is one for each direction, because the speed depends on the place of memory and on the direction. They
    overwrite the pools.
    """
    num_words = num_bytes // 8
    gpu, cpu = (world.arenas[pool].memory.view(-1) for pool in (PoolId.GPU, PoolId.CPU))
    low, high = range(num_places), range(num_places, 2 * num_places)

    def plain(direction: str, target: torch.Tensor, targets: range, source: torch.Tensor, sources: range) -> Timed:
        tensors = [
            (target[a * num_words : (a + 1) * num_words], source[b * num_words : (b + 1) * num_words])
            for a, b in zip(targets, sources, strict=True)
        ]
        return plain_copy(direction + label, tensors, num_bytes)

    return [plain(IN, gpu, low, cpu, low), plain(OUT, cpu, high, gpu, high), plain(WITHIN, gpu, high, gpu, low)]


def plain_copy(name: str, tensors: Sequence[tuple[torch.Tensor, torch.Tensor]], num_bytes: int) -> Timed:
    """Copies of `num_bytes` bytes each. tensors: pairs of target and source."""
    works = [partial(target.copy_, source, non_blocking=True) for target, source in tensors]
    return Timed("plain copy", name, works, num_bytes, name)


def plain_read(memory: torch.Tensor) -> Timed:
    """A read of memory of which nothing is written but one number: the limit of a comparison on a GPU."""
    return Timed(READ, COMPARED, [partial(torch.sum, memory)], memory.nbytes, COMPARED)


def reference_of(moves: Moves) -> str:
    """The name of the plain copy in the direction of these moves."""
    if moves.swap_in:
        return IN
    return OUT if moves.swap_out else WITHIN


def _cut(sources: list[int], targets: list[int], num_pairs: int) -> list[tuple[Pair, ...]]:
    pairs = tuple(zip(sources, targets, strict=True))
    return [pairs[first : first + num_pairs] for first in range(0, len(pairs), num_pairs)]
