"""Which lines of a class its scenarios reach, seen by running every path on concrete numbers.

Each path is replayed with values that take it: the method must then end as the path says, and every claim must be
true of plain numbers as it was of terms. So a replay also checks the symbolic numbers against Python's own.
"""

import linecache
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

from kvproof.models.concolic.scenario import Scenario, Shape, replayed


class PathNotTaken(Exception):
    """Values that should take a path make the method do something else: the symbolic numbers are wrong."""


@dataclass(frozen=True)
class Reached:
    """How many paths a subject has, and the text of those lines of it that none of them reaches."""

    num_paths: int
    lines_missed: tuple[str, ...]


def reached(subject: Any, explored: Iterable[tuple[Scenario, Shape]]) -> Reached:
    """Replay every path of the scenarios, which are about `subject`. Raises PathNotTaken."""
    codes = list(_codes(subject))
    seen: set[tuple[CodeType, int]] = set()
    num_paths = 0
    for scenario, shape in explored:
        for path in shape.paths:
            ending, claims = _watched(codes, seen, partial(replayed, scenario, shape.name, path.example))
            false = [claim.sentence for claim in claims if not claim.holds]
            if ending != path.ending or false:
                raise PathNotTaken(
                    f"{scenario.name} {shape.name} with {path.example} {ending}, not {path.ending}; {false}"
                )
            num_paths += 1
    missed = [
        linecache.getline(code.co_filename, line).strip()
        for code in codes
        for line in sorted({line for *_, line in code.co_lines() if line and line > code.co_firstlineno})
        if (code, line) not in seen
    ]
    return Reached(num_paths, tuple(missed))


def _codes(subject: Any) -> Iterator[CodeType]:
    """The code of a function, or of every method and property of a class."""
    parts = vars(subject).values() if isinstance(subject, type) else [subject]
    for part in parts:
        function = part.fget if isinstance(part, property) else part
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield code
            yield from (one for one in code.co_consts if isinstance(one, CodeType))


def _watched(codes: list[CodeType], seen: set[tuple[CodeType, int]], run: Callable[[], Any]) -> Any:
    watched = set(codes)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in watched:
            return None
        if event == "line":
            seen.add((frame.f_code, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run()
    finally:
        sys.settrace(before)
