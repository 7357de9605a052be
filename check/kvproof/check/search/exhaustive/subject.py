"""Every reachable state of a small scope of a subject, in lockstep with the specification.

A subject cannot be put into a state, so each transition runs the path to its state again on a newly opened subject.
Two runs reach the same state if what the judge knows and what the subject shows of its future choices are equal, up to
names (`Strategy.exhaustive`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from kvproof.check.hosts.time_limit import time_limit_of
from kvproof.check.protocol.finding import Finding, FindingKey
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.breadth_first import search
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.check.search.strategies import Exhaustive, Strategy
from kvproof.spec.text.identity import Identities
from kvproof.spec.trace import Operation

TRANSITION_SECONDS_MAX = 20.0
PROGRESS_EVERY = 100  # states


class Reached(NamedTuple):
    """The judge at the end of a path."""

    path: list[Operation]
    judge: Any


class Node(NamedTuple):
    """A state: the path to it, and the operations that are enabled there."""

    path: list[Operation]
    enabled: list[Operation]


class SubjectSpace:
    """The states of a subject in a scope. `open` opens the subject and returns its judge. `time_limit` is for one
    transition. `past`: findings that are excused; an operation that shows one leads to no state, and is counted."""

    def __init__(
        self,
        exhaustive: Exhaustive,
        open: Callable[[], Any],
        enabled: Callable[[Any], Iterator[Operation]],
        begin: Callable[[], list[Operation]],
        time_limit: Callable[[], AbstractContextManager[object]],
        past: Collection[FindingKey] = (),
    ) -> None:
        self.state_key_of, self.open, self.enabled = exhaustive.state_key, open, enabled
        self.begin, self.time_limit, self.past = begin, time_limit, past
        self.num_past = 0
        self.coverage: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    def first(self) -> Reached:
        """The subject as it was opened."""
        return Reached([], self.open())

    def state_key(self, reached: Reached) -> Any:
        """A key that is equal for states that differ only in names."""
        return self.state_key_of(reached.judge)

    def expand(self, reached: Reached) -> Node:
        """The operations that are enabled in the state."""
        if reached.path:
            self.coverage.update(reached.judge.coverage)
            self.notes.update(reached.judge.notes)
        return Node(reached.path, list(self.enabled(reached.judge)))

    def successors(self, node: Node) -> Iterator[tuple[Operation, Reached]]:
        """Run each enabled operation, after the path to the state. Raises Finding."""
        for operation in node.enabled:
            path = [*node.path, operation]
            self.begin().extend(path)
            try:
                with self.time_limit():
                    judge = self.open()
                    for each in path:
                        judge.apply(each)
            except Finding as finding:
                if finding.key(path) in self.past:
                    self.num_past += 1
                    continue
                finding.tried = operation
                raise
            yield operation, Reached(path, judge)


def explore(
    strategy: Strategy,
    subject: Any,
    scope: Scope,
    *,
    seconds: float,
    max_transitions: int = UNLIMITED,
    progress: Callable[[int], None] | None = None,
    begin: Callable[[Config], list[Operation]] = lambda config: [],
    transition_seconds: float = TRANSITION_SECONDS_MAX,
    past: Iterable[FindingKey] = (),
) -> SearchResult:
    """Search a scope for so many seconds and transitions. Raises Unsupported if the subject has no such configuration.

    begin: returns a list to which the operations of each path are appended before they are executed, as in a walk.
    transition_seconds: the time limit of one transition, with the path to its state, unless each call has a limit.
    past: findings that do not end the search. Nothing is searched after an operation that shows one.
    """
    exhaustive = strategy.exhaustive
    exhaustive.check(subject, scope)
    config, identities = exhaustive.config_of(scope), Identities()
    space = SubjectSpace(
        exhaustive,
        lambda: strategy.level.open(subject, config, identities),
        exhaustive.enabled(scope, subject),
        lambda: begin(config),
        lambda: time_limit_of(subject, transition_seconds),
        {*past},
    )
    found = search(
        space,
        config,
        seconds=seconds,
        max_transitions=max_transitions,
        progress=progress,
        progress_every=PROGRESS_EVERY,
    )
    found.coverage, found.notes, found.num_past = space.coverage, space.notes, space.num_past
    return found
