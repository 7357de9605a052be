"""kvproof's own KV cache engine, which moves adjacent blocks with one copy."""

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves
from kvproof.impl.block_mover import BlockMover


def prepare(caches: Caches) -> MoveBlocks:
    """Use the engine's mover on the planes of the case."""
    mover = BlockMover(caches.gpu_planes, caches.cpu_planes)

    def move(moves: Moves) -> None:
        mover.swap_in(moves.swap_in)
        mover.swap_out(moves.swap_out)
        mover.copy(moves.copy)

    return move


EXECUTOR = Executor("engine", prepare)
