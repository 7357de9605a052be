"""The interface of an executor, the code that moves bytes.

An executor is prepared once for the tensors of a case, as an engine is built once, and then called for each step. It
executes the three lists of a step in the worker's order: swaps in, swaps out, copies. When a call returns, its work has
ended or is ordered before later work of the current stream.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kvproof.check.data_plane.memory.layouts import Geometry, UnknownSetting
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import own

MoveBlocks = Callable[[Moves], object]


def supports_all(geometry: Geometry, device: torch.device) -> str:
    """The `unsupported` of an executor that supports every layout, element type and device."""
    return ""


@dataclass(frozen=True)
class Executor:
    """An executor. prepare: returns the function that executes one step.

    unsupported: why the executor cannot run a case, as a sentence; empty if it can. is_own: the executor is the user's
    function, and `name` is its module:function. In main memory it runs in a separate process, so that its crash does
    not end kvproof. note: what a report must say about a run of the executor. untimed: why its speed is not measured
    beside that of the others; empty if it is.
    """

    name: str
    prepare: Callable[[Caches], MoveBlocks]
    unsupported: Callable[[Geometry, torch.device], str] = supports_all
    is_own: bool = False
    note: str = ""
    untimed: str = ""


def own_executor(name: str) -> Executor:
    """The executor that calls a user's function. The function is imported by `prepare`, maybe in another process."""

    def prepare(caches: Caches) -> MoveBlocks:
        function = own_function(name)
        return lambda moves: function(caches, moves)

    return Executor(name, prepare, is_own=True)


def own_function(name: str) -> Any:
    """Import the function. Raises UnknownSetting with a message for the user."""
    try:
        return own(name, "function")
    except UnknownSubject as error:
        raise UnknownSetting(str(error)) from error
