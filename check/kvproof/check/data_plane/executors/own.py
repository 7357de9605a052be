"""A user's function as an executor, given as `module:function` or `path/to/file.py:function`."""

from typing import Any

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.layouts import UnknownSetting
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import own


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
