"""kvproof's own executors: its KV cache engine, and two plain ways to copy, as references for the others."""

import torch

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, PoolId
from kvproof.impl.kv_cache_engine import BlockMover


def move_by_engine(caches: Caches) -> MoveBlocks:
    """The mover of kvproof's KV cache engine, which moves adjacent blocks with one copy."""
    mover = BlockMover(caches.gpu_planes, caches.cpu_planes)

    def move(moves: Moves) -> None:
        mover.swap_in(moves.swap_in)
        mover.swap_out(moves.swap_out)
        mover.copy(moves.copy)

    return move


def copy_blocks(caches: Caches) -> MoveBlocks:
    """One tensor copy for each pair and layer: the simplest executor."""
    planes = {PoolId.GPU: caches.gpu_planes, PoolId.CPU: caches.cpu_planes}

    def move(moves: Moves) -> None:
        for _, source_pool, target_pool, pairs in moves.lists():
            for here, there in zip(planes[source_pool], planes[target_pool], strict=True):
                for source, target in pairs:
                    there[target].copy_(here[source])

    return move


def copy_by_index(caches: Caches) -> MoveBlocks:
    """The index operations of torch: gather all sources of a list, then scatter them to their targets."""
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


EXECUTORS = (
    Executor("engine", move_by_engine),
    Executor("block-copy", copy_blocks),
    Executor("index-copy", copy_by_index),
)
