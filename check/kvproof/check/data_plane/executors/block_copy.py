"""One tensor copy for each pair and layer: the simplest executor, a reference for the others."""

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, PoolId


def prepare(caches: Caches) -> MoveBlocks:
    """Copy pair by pair, on the planes of the case."""
    planes = {PoolId.GPU: caches.gpu_planes, PoolId.CPU: caches.cpu_planes}

    def move(moves: Moves) -> None:
        for _, source_pool, target_pool, pairs in moves.lists():
            for here, there in zip(planes[source_pool], planes[target_pool], strict=True):
                for source, target in pairs:
                    there[target].copy_(here[source])

    return move


EXECUTOR = Executor("block-copy", prepare)
