"""An executor for `kvproof device` with a fault that was in a released engine: it does not look at what a copy says.

It takes the host's ids for such as are counted over both pools, so that many lie beyond the pool. Each such copy fails,
and the failure is not reported: nothing is moved, and a sequence goes on with the KV of another (vLLM 7577).
"""

from __future__ import annotations

from torch import Tensor

from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves


def move(caches: Caches, moves: Moves) -> None:
    """The lists of one step, in the worker's order."""
    num_gpu_blocks = caches.geometry.num_gpu_blocks
    for source, target in moves.swap_in:
        copy_block(caches.cpu_planes, source - num_gpu_blocks, caches.gpu_planes, target)
    for source, target in moves.swap_out:
        copy_block(caches.gpu_planes, source, caches.cpu_planes, target)
    for source, target in moves.copy:
        copy_block(caches.gpu_planes, source, caches.gpu_planes, target)


def copy_block(sources: list[Tensor], source: int, targets: list[Tensor], target: int) -> bool:
    """One block in every plane; whether that could be done, which nobody asks."""
    if not 0 <= source < len(sources[0]):
        return False
    for here, there in zip(sources, targets, strict=True):
        there[target] = here[source]
    return True
