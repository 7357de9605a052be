"""The loop level: a whole scheduler is driven step by step, and everything it does to its tables is explained."""

from kvproof.check.loop.judge import LoopLockstep, replay_loop
from kvproof.check.loop.minimiser import minimise_loop
from kvproof.check.loop.subject import Chunk, LoopConfig, LoopSubject, Step
from kvproof.check.loop.walker import walk_loop

__all__ = [
    "Chunk",
    "LoopConfig",
    "LoopLockstep",
    "LoopSubject",
    "Step",
    "minimise_loop",
    "replay_loop",
    "walk_loop",
]
