"""What can be put under test, by name: one small module each, and `module:function` for one's own.

A function of one's own is called as `function(caches, moves)`, see `world.Caches` and `moves.Moves`: it executes the
lists of one step in the worker's order, on the tensors of `caches`, and returns when that is done or ordered before
later work of the current stream. Source and target ids count from 0 in each pool.
"""

from __future__ import annotations

import difflib

from kvproof.check.data_plane.executors import block_copy, engine, index_copy, vllm_operators
from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.executors.own import own_executor
from kvproof.check.data_plane.memory.layouts import UnknownSetting

__all__ = ["BUILT_IN", "Executor", "MoveBlocks", "named"]

BUILT_IN: dict[str, Executor] = {
    executor.name: executor
    for executor in (engine.EXECUTOR, block_copy.EXECUTOR, index_copy.EXECUTOR, vllm_operators.EXECUTOR)
}


def named(name: str) -> Executor:
    """The executor of this name, or one's own. Raises UnknownSetting with a message for the user."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" in name:
        return own_executor(name)
    close = difflib.get_close_matches(name, BUILT_IN, n=1)
    hint = (
        f"did you mean {close[0]}?" if close else f"there are {', '.join(BUILT_IN)}, and module:function for your own"
    )
    raise UnknownSetting(f"no executor is named {name!r}; {hint}")
