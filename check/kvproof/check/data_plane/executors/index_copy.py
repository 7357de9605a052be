"""The index operations of torch: gather all sources of a list, then scatter them to their targets."""

import torch

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, PoolId


def prepare(caches: Caches) -> MoveBlocks:
    """Copy list by list, on the planes of the case."""
    planes = {PoolId.GPU: caches.gpu_planes, PoolId.CPU: caches.cpu_planes}

    def move(moves: Moves) -> None:
        for _, source_pool, target_pool, pairs in moves.lists():
            if not pairs:
                continue
            sources, targets = torch.tensor(pairs, dtype=torch.int64).unbind(1)
            for here, there in zip(planes[source_pool], planes[target_pool], strict=True):
                gathered = here.index_select(0, sources.to(here.device))
                there.index_copy_(0, targets.to(there.device), gathered.to(there.device))

    return move


EXECUTOR = Executor("index-copy", prepare)
