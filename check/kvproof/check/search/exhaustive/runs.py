"""The breadth-first search over runs of a subject: the shortest run that refutes it, or every state of a scope.

A subject cannot be put into a state, so each transition runs the path to its state again on a newly opened subject.
What tells states apart is said by whoever asks: what the judge knows, and what the subject shows of its choices to
come. Blocks are renamed by first occurrence there, because no rule prefers one; that the subject does not either, but
for the order it shows, is the assumption `block-symmetry`.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Assumption, Config
from kvproof.check.protocol.scopes import Scope
from kvproof.check.protocol.time_limit import time_limit
from kvproof.spec.trace import Operation

TRANSITION_SECONDS_MAX = 20.0
PROGRESS_EVERY = 100
BLOCK_SYMMETRY = Assumption(
    "block-symmetry", "The manager prefers no block to another, but for the order of free blocks it shows."
)


@dataclass
class SubjectExploration:
    """What was searched, how far, and what was found. depth: operations on the longest of the shortest paths."""

    scope: Scope
    config: Config
    states: int = 0
    transitions: int = 0
    depth: int = 0
    is_exhausted: bool = False
    finding: Finding | None = None
    operations: list[Operation] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    witnesses: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Judged(Protocol):
    """A judge of whichever level, with its subject opened."""

    coverage: Counter[str]
    notes: Counter[str]

    def apply(self, operation: Operation) -> bool:
        """Do one operation; raises Finding."""
        ...


J = TypeVar("J", bound=Judged)


@dataclass(frozen=True)
class Runs(Generic[J]):
    """The runs of a scope: how one begins, the operations that its state has, and what tells that state apart."""

    begin: Callable[[], J]
    enabled: Callable[[J], Iterable[Operation]]
    form: Callable[[J], Hashable]

    def after(self, path: list[Operation]) -> J:
        """The judge at the end of a path."""
        judge = self.begin()
        for operation in path:
            judge.apply(operation)
        return judge


def search(
    found: SubjectExploration,
    runs: Runs[J],
    *,
    seconds: float,
    progress: Callable[[int], None] | None = None,
    begin: Callable[[Config], list[Operation]] | None = None,
    transition_seconds: float = TRANSITION_SECONDS_MAX,
) -> SubjectExploration:
    """Fill in what is found within so many seconds.

    begin: gives a list that is told the operations of each path before they are done, as in a walk.
    """
    began = time.monotonic()
    path: list[Operation] = []
    try:
        first = runs.after([])
        seen = {runs.form(first)}
        frontier: list[tuple[list[Operation], list[Operation]]] = [([], list(runs.enabled(first)))]
        while frontier and time.monotonic() - began < seconds:
            following: list[tuple[list[Operation], list[Operation]]] = []
            for before, operations in frontier:
                if time.monotonic() - began > seconds:
                    break
                for operation in operations:
                    path = [*before, operation]
                    if begin:
                        begin(found.config).extend(path)
                    with time_limit(transition_seconds):
                        judge = runs.after(path)
                    found.transitions += 1
                    form = runs.form(judge)
                    if form not in seen:
                        seen.add(form)
                        following.append((path, list(runs.enabled(judge))))
                        found.fired.update(judge.coverage)
                        found.notes.update(judge.notes)
                        if progress and len(seen) % PROGRESS_EVERY == 0:
                            progress(len(seen))
            else:
                found.depth += bool(following)
                frontier = following
        found.is_exhausted = not frontier
        found.states = len(seen)
    except Finding as finding:
        found.finding, found.operations, found.states = finding, path, len(seen) if path else 0
    found.seconds = time.monotonic() - began
    return found
