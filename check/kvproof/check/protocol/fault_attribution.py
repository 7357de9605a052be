"""Whose fault an exception is: the subject's, or that of kvproof's adapters and stand-ins.

Of an engine only the modules around its block manager are imported; stand-ins of kvproof replace the rest. If a release
asks a stand-in for something that it does not have, the exception comes from a frame of the engine, but the engine is
not wrong. An exception is a fault of kvproof, and never a finding, if

- its innermost frame is in an adapter or a stand-in;
- it is an `AttributeError` on an object, a type or a module of ours;
- it is an `ImportError` about a module that stands in, or about a package that the engine needs and that is missing;
- it is a `TypeError` that names a type of ours, or a function of ours that was called with the wrong arguments;
- it is about None, in a line of the engine that names an option which kvproof leaves out (`OPTIONS_LEFT_OUT`);
- it was raised while such an exception was handled.

The built-in subjects are subjects, not stand-ins. A frame that runs out of memory or of stack is only the last one.
"""

import errno
import linecache
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from kvproof.check.protocol.finding import error_text

OURS, BUILT_IN = "kvproof.check.subjects.", ("kvproof.check.subjects.builtin.", "kvproof.check.subjects.own")
QUOTED = re.compile(r"'([\w.]+)'")
CALLED = re.compile(r"(\w+)(?:[.<>][\w.<>]*)?\(\) (?:takes|got|missing)")  # the first name in that of what was called
WORD = re.compile(r"\w+")
MESSAGE_CHARACTERS = 300
LACKS = {  # what the machine, or a limit of this process, does not give
    errno.EMFILE: "too many files are open in this process; raise its limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.EAGAIN: "no more processes can be started; raise the limit (ulimit -u)",
    errno.ENOMEM: "no memory is left for another process",
}
FULL = {  # of a disk
    errno.ENOSPC: "no space is left on a disk; free some space",
    errno.EDQUOT: "a quota of a disk is used up; free some space",
    errno.EFBIG: "a file would be larger than the limit of a process; raise it (ulimit -f)",
}
OPTIONS_LEFT_OUT: set[str] = set()  # names that were read of a configuration of ours, and answered with None


class StandInError(Exception):
    """An adapter or a stand-in of kvproof failed; nothing is known about the subject."""


class EngineFailure(Exception):
    """The engine failed, and the adapter says how in its own words. Raised by adapters; a fault of the engine."""


def lack_of(error: BaseException) -> str:
    """What was missing if a call of the system failed for lack of files, processes, memory or space; "" otherwise."""
    if isinstance(error, StandInError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return LACKS[errno.EAGAIN]
    return (LACKS | FULL).get(error.errno or 0, "") if isinstance(error, OSError) else ""


@contextmanager
def by_means_of_kvproof(context: str) -> Iterator[None]:
    """Within the block, kvproof opens files and starts processes. If the system refuses that, raise StandInError."""
    try:
        yield
    except OSError as error:
        raise StandInError(f"{context}: {error.strerror or error}") from error


def require_fault_of_subject(error: BaseException, context: str) -> None:
    """Raise StandInError if the exception is a fault of kvproof. context: the call that raised it."""
    if is_fault_of_kvproof(error):
        message = f"{type(error).__name__}: {error_text(error)}"[:MESSAGE_CHARACTERS]
        raise StandInError(f"{context}: an adapter or stand-in of kvproof failed, not the engine: {message}") from error


def is_fault_of_kvproof(error: BaseException | None) -> bool:
    """Whether the exception, or one that was being handled when it was raised, is a fault of kvproof."""
    known = set[int]()
    while error is not None and id(error) not in known:  # a subject can make a ring of exceptions
        known.add(id(error))
        if _is_fault(error):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _is_fault(error: BaseException) -> bool:
    if isinstance(error, EngineFailure | MemoryError | RecursionError):
        return False
    raised_in, line = _innermost(error.__traceback__)
    if _is_ours(raised_in):
        return True
    if "'NoneType'" in error_text(error) and not OPTIONS_LEFT_OUT.isdisjoint(WORD.findall(line)):
        return True
    match error:
        case AttributeError():
            return _is_of_ours(error.obj)
        case ImportError():
            return _stands_in(error.name or "") or _stands_in(raised_in.partition(".")[0])
        case TypeError():
            message = error_text(error)
            called = CALLED.match(message)
            named = [called[1]] if called else [name.rpartition(".")[2] for name in QUOTED.findall(message)]
            return any(map(_defines, named))
    return False


def _is_ours(module: str) -> bool:
    return module.startswith(OURS) and not module.startswith(BUILT_IN)


def _innermost(traceback: TracebackType | None) -> tuple[str, str]:
    """The name of the module whose code raised, and the line of its source; empty if no Python code did."""
    if traceback is None:
        return "", ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    line = linecache.getline(frame.f_code.co_filename, traceback.tb_lineno, frame.f_globals)
    return str(frame.f_globals.get("__name__", "")), line


def _is_of_ours(thing: Any) -> bool:
    """Whether it is a type of ours, or of one; modules that stand in are of a type of ours."""
    kind = thing if isinstance(thing, type) else type(thing)
    return _is_ours(kind.__module__)


def _stands_in(module: str) -> bool:
    """Whether the module, or the nearest package above it that is imported, is one of ours."""
    while module and module not in sys.modules:
        module = module.rpartition(".")[0]
    return bool(module) and _is_of_ours(sys.modules[module])


def _defines(name: str) -> bool:
    """Whether a module of adapters or stand-ins defines a type or function of this name."""
    ours = [vars(module) for key, module in sys.modules.items() if _is_ours(key)]
    return any(getattr(names.get(name), "__module__", None) == names.get("__name__") for names in ours)
