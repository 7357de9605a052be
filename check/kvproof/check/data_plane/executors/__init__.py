"""The executors that can be tested, by name, and `module:function` for a user's function.

A run uses all of BUILT_IN, unless executors are named. REFERENCES are run only where they are named.

A user's function is called as `function(caches, moves)`, see `world.Caches` and `moves.Moves`. It executes the lists of
one step in the worker's order, on the tensors of `caches`, and returns when the work has ended or is ordered before
later work of the current stream. Source and target ids count from 0 in each pool.
"""

import difflib

from kvproof.check.data_plane.executors import built_in, sglang_operators, vllm_operators
from kvproof.check.data_plane.executors.base import Executor, MoveBlocks, own_executor
from kvproof.check.data_plane.executors.built_in import EXECUTORS
from kvproof.check.data_plane.memory.layouts import UnknownSetting

__all__ = ["BUILT_IN", "Executor", "MoveBlocks", "named"]

_ENGINES = (vllm_operators, sglang_operators)
BUILT_IN: dict[str, Executor] = {one.name: one for one in (*EXECUTORS, *(engine.EXECUTOR for engine in _ENGINES))}
_NAMED = (built_in.EXECUTOR, *(engine.REFERENCE for engine in _ENGINES))
REFERENCES: dict[str, Executor] = {one.name: one for one in _NAMED}


def named(name: str) -> Executor:
    """The executor of this name, or the user's function. Raises UnknownSetting with a message for the user."""
    known = BUILT_IN | REFERENCES
    if name in known:
        return known[name]
    if ":" in name:
        return own_executor(name)
    close = difflib.get_close_matches(name, known, n=1)
    choice = f"choose one of {', '.join(known)}, or module:function for your own function"
    hint = f"did you mean {close[0]}?" if close else choice
    raise UnknownSetting(f"no executor is named {name!r}; {hint}")
