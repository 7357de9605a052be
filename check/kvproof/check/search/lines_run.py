"""Which lines of the subject's code a search ran, from Python 3.12 on, where the interpreter reports each line once.

`sys.monitoring` calls back when a line runs for the first time, and does not report it again. So a search is not slower
but for its first runs. Older versions have nothing that is as cheap, and report nothing.

The code of the subject is all that is neither Python's own nor kvproof's nor that of an installed package which the
subject's module does not name. kvproof's own managers (`kvproof.impl`) are subjects too.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kvproof.check.protocol.adapter_fault import STANDARD_LIBRARY, wrapped
from kvproof.check.search.result import Lines

IS_REPORTED = sys.version_info >= (3, 12)
OURS = tuple(f"{folder}{os.sep}" for folder in sys.modules["kvproof"].__path__)
IMPLEMENTATION = tuple(f"{folder}impl{os.sep}" for folder in OURS)  # not imported: another one may be judged
INSTALLED = ("site-packages", "dist-packages")
NO_SUBJECT = frozenset({"numpy", "torch", "kvproof"})  # packages that a manager is built on
CACHED = type(cache(int))  # what `functools.cache` makes of a function
TOOLS = (4, 3, 1, 2, 0, 5)  # of `sys.monitoring`; 4 and 3 have no name, so they are usually free


class LinesRun:
    """The lines that ran. A function that was entered has its first line, with its decorators."""

    def __init__(self, subject: Any) -> None:
        self._named = packages_named_by(wrapped(subject))
        self._ran: dict[str, set[int]] = {}
        self._is_of_subject: dict[str, bool] = {}

    def by_file(self) -> Lines:
        """The lines of each file."""
        return {file: sorted(lines) for file, lines in sorted(self._ran.items()) if lines}

    def is_of_subject(self, file: str) -> bool:
        """Whether the file is code of the subject."""
        found = self._is_of_subject.get(file)
        if found is None:
            found = self._is_of_subject[file] = is_of(file, self._named)
        return found

    def note(self, code: CodeType, *lines: int) -> None:
        """Lines of the subject have run."""
        self._ran.setdefault(code.co_filename, set()).update(lines)

    def codes(self) -> dict[int, CodeType]:
        """The code of every function that the modules of the subject hold, and of those within them, by identity.

        Two functions may have equal code. Nothing of the subject is asked for an attribute that it could compute.
        """
        found: dict[int, CodeType] = {}
        seen = set[int]()
        modules = [one for one in [*sys.modules.values()] if isinstance(one, ModuleType)]
        left: list[Any] = [value for one in modules if self._has_file(one) for value in [*vars(one).values()]]
        while left:
            one = left.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, CodeType):
                if self.is_of_subject(one.co_filename):
                    found[id(one)] = one
                    left += one.co_consts
            elif isinstance(one, FunctionType):
                left += [one.__code__, one.__dict__.get("__wrapped__")]
            elif isinstance(one, type):
                left += vars(one).values() if self._has_file(sys.modules.get(str(vars(one).get("__module__")))) else ()
            elif isinstance(one, property):
                left += [one.fget, one.fset, one.fdel]
            elif isinstance(one, staticmethod | classmethod):
                left.append(one.__func__)
            elif isinstance(one, cached_property | partial):
                left.append(one.func)
            elif isinstance(one, CACHED):
                left.append(one.__wrapped__)
        return found

    def _has_file(self, module: Any) -> bool:
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        return isinstance(file, str) and self.is_of_subject(file)


@contextmanager
def lines_run(subject: Any) -> Iterator[LinesRun]:
    """Note the lines that run within the block; none before Python 3.12, or beside a tool that takes every number."""
    ran = LinesRun(subject)
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        events = monitoring.events
        tool = next((number for number in TOOLS if monitoring.get_tool(number) is None), None)
        if tool is not None:
            watched = ran.codes()

            def on_line(code: CodeType, line: int) -> Any:
                ran.note(code, line)
                return monitoring.DISABLE

            def on_start(code: CodeType, offset: int) -> Any:
                if id(code) in watched:
                    ran.note(code, code.co_firstlineno)
                elif ran.is_of_subject(code.co_filename):  # which of its lines run now is not reported
                    ran.note(code, *(line for _, _, line in code.co_lines() if line))
                return monitoring.DISABLE

            monitoring.use_tool_id(tool, "kvproof")
            try:
                monitoring.register_callback(tool, events.LINE, on_line)
                monitoring.register_callback(tool, events.PY_START, on_start)
                for code in watched.values():
                    monitoring.set_local_events(tool, code, events.LINE)
                monitoring.set_events(tool, events.PY_START)
                yield ran
            finally:
                monitoring.set_events(tool, events.NO_EVENTS)
                for code in watched.values():
                    monitoring.set_local_events(tool, code, events.NO_EVENTS)
                monitoring.register_callback(tool, events.LINE, None)
                monitoring.register_callback(tool, events.PY_START, None)
                monitoring.free_tool_id(tool)
            return
    yield ran


def is_of(file: str, named: frozenset[str]) -> bool:
    """Whether a file is code of the subject. named: the packages that its module names."""
    if file.startswith(("<", *OURS)):
        return file.startswith(IMPLEMENTATION)
    parts = Path(file).parts
    folder = next((at for at in range(len(parts) - 2, -1, -1) if parts[at] in INSTALLED), None)
    if folder is not None:
        return parts[folder + 1].removesuffix(".py") in named
    return not file.startswith(STANDARD_LIBRARY)


def packages_named_by(subject: Any) -> frozenset[str]:
    """The installed packages whose modules, classes or functions the module of the subject's class names."""
    module = sys.modules.get(type(subject).__module__)
    values = [module, *vars(module).values()] if isinstance(module, ModuleType) else []
    modules = [vars(one).get("__name__") for one in values if isinstance(one, ModuleType)]
    others = [one.__module__ for one in values if isinstance(one, type | FunctionType)]
    return frozenset(str(name).partition(".")[0] for name in (*modules, *others)) - NO_SUBJECT
