"""The breadth-first search that the specification and the subjects share.

The path to what it finds is as short as any, because shorter paths are tried before. A search that ran out of time or
reached its number of transitions is not exhausted, and proves nothing about the states that it did not reach.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from kvproof.check.hosts.time_limit import OutOfTime, seconds_left
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.search.result import UNLIMITED, SearchResult

Operation = tuple[Any, ...]
N = TypeVar("N")
R = TypeVar("R")


class Space(Protocol[N, R]):
    """The states that a search can reach. `R` is what a transition reaches, `N` what is kept of it if it is new."""

    def first(self) -> R:
        """The initial state. Raises Finding."""
        ...

    def state_key(self, reached: R, /) -> Hashable:
        """Equal for states that are to be taken for one."""
        ...

    def expand(self, reached: R, /) -> N:
        """What is kept of a state that was not reached before. Raises Finding if the state itself breaks a property."""
        ...

    def successors(self, node: N, /) -> Iterator[tuple[Operation, R]]:
        """Every transition out of a state. Raises Finding, which says what was `tried`."""
        ...


def search(
    space: Space[N, R],
    config: Config,
    *,
    seconds: float,
    max_transitions: int = UNLIMITED,
    progress: Callable[[int], None] | None = None,
    progress_every: int,
) -> SearchResult:
    """Search every state for at most so many seconds; the first finding ends the search.

    max_transitions: no state is expanded after so many transitions. progress: called with the number of states, each
    time that so many more were found.
    """
    began = time.perf_counter()
    found, num_transitions = SearchResult(), 0
    came_from: dict[Hashable, tuple[Hashable, Operation]] = {}
    state_key, successors, expand = space.state_key, space.successors, space.expand
    key: Hashable = None  # of the state under way
    operation: Operation = ()

    try:
        first = space.first()
        key = root = state_key(first)
        came_from[root] = (root, ())
        frontier = [(root, expand(first))]
        while frontier:
            following: list[tuple[Hashable, N]] = []
            for key, node in frontier:
                if num_transitions >= max_transitions or time.perf_counter() - began > seconds:
                    break
                operation = ()
                for operation, reached in successors(node):
                    num_transitions += 1
                    reached_key = state_key(reached)
                    if reached_key in came_from:
                        continue
                    came_from[reached_key] = (key, operation)
                    following.append((reached_key, expand(reached)))
                    if progress and not len(came_from) % progress_every:
                        progress(len(came_from))
            else:
                found.depth += bool(following)
                frontier = following
                continue
            break
        found.is_exhausted = not frontier
    except Finding as finding:
        path = _path(came_from, key, operation if finding.tried is None else finding.tried)
        found.counterexample = Counterexample(config, path, finding)
    except OutOfTime:
        if time.perf_counter() - began < seconds and seconds_left() > 0:  # the subject raised it
            raise
        found.is_exhausted = False
    found.num_states, found.num_operations = len(came_from), num_transitions
    found.seconds = time.perf_counter() - began
    return found


def _path(
    came_from: Mapping[Hashable, tuple[Hashable, Operation]], key: Hashable, operation: Operation
) -> list[Operation]:
    """The operations that lead to a state, and the one tried there. The first state came from itself."""
    operations = [operation] if operation else []
    while key in came_from and came_from[key][0] != key:
        key, before = came_from[key]
        operations.append(before)
    return operations[::-1]
