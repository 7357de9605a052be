"""The exhaustive search of scopes as units of work: each scope is one unit, and the results come in their order."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.isolation.remote_search import explore
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.protocol.time_limit import search_ends_after
from kvproof.check.runs.walk_units import Judged, factory_of, unless_killed
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import strategy_of
from kvproof.check.workers.workers import Workers

OnCount = Callable[[int], None]
Search = Callable[[Scope, float, int, OnCount], SearchResult]  # of a scope: seconds, transitions, progress


@dataclass(frozen=True)
class ScopeUnit:
    """A scope to search. seconds: until the search must end."""

    subject: Judged
    scope: Scope
    max_transitions: int
    seconds: float


def explore_unit(unit: ScopeUnit) -> Any:
    """The packed result of the search, or why the subject does not support the scope, as a text."""
    bounds: dict[str, Any] = {"seconds": unit.seconds, "max_transitions": unit.max_transitions}

    def search() -> list[SearchResult]:
        subject = factory_of(unit.subject)()
        with search_ends_after(unit.seconds):
            return [explore(strategy_of(subject), subject, unit.scope, **bounds)]

    try:
        return pack(unless_killed(search)[0])
    except Unsupported as error:
        return str(error)


@dataclass
class ScopeUnits:
    """The searches of a subject's scopes by workers."""

    workers: Workers
    subject: Judged

    def search_of(self, scopes: Mapping[str, Scope], max_transitions: int, search_here: Search) -> Search:
        """A function that gives the result of each scope, called in the order of the scopes.

        Later scopes begin before earlier ones are asked for, each with max_transitions. If fewer are left when a scope
        is asked for, and its search did more, search_here searches it again. So the results are those of one search
        after the other.
        """
        begun: list[Iterator[Any]] = []

        def search(scope: Scope, seconds: float, num_left: int, progress: OnCount) -> SearchResult:
            if not begun:
                begun.append(self.workers.results(explore_unit, self._units(scopes, max_transitions, seconds)))
            packed = next(begun[0])
            if isinstance(packed, str):
                raise Unsupported(packed)
            done: SearchResult = unpack(packed)
            if num_left == max_transitions or done.num_operations < num_left:
                return done
            return search_here(scope, seconds, num_left, progress)

        return search

    def _units(self, scopes: Mapping[str, Scope], max_transitions: int, seconds: float) -> Iterator[ScopeUnit]:
        deadline = time.monotonic() + seconds
        for scope in scopes.values():
            yield ScopeUnit(self.subject, scope, max_transitions, max(0.0, deadline - time.monotonic()))
