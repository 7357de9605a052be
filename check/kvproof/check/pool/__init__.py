"""The pool level: block ids only. Blocks are allocated, shared and freed; cached ones are found by their content."""

from kvproof.check.pool.explorer import explore_pool
from kvproof.check.pool.judge import PoolLockstep, replay_pool
from kvproof.check.pool.minimiser import minimise_pool
from kvproof.check.pool.subject import PoolConfig, PoolSubject
from kvproof.check.pool.walker import walk_pool

__all__ = [
    "PoolConfig",
    "PoolLockstep",
    "PoolSubject",
    "explore_pool",
    "minimise_pool",
    "replay_pool",
    "walk_pool",
]
