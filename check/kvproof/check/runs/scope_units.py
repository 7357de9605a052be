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

    def search_of(self, scopes: Mapping[str, Scope], max_transitions: int, is_shared: bool) -> Search:
        """A function that gives the result of each scope, called in the order of the scopes.

        max_transitions: of each scope, and then later scopes begin before they are asked for; of all scopes together if
        is_shared, and then each is searched when it is asked for, with what the earlier ones have left. So the results
        are those of one search after the other.
        """
        begun: list[Iterator[Any]] = []

        def search(scope: Scope, seconds: float, num_left: int, progress: OnCount) -> SearchResult:
            if is_shared:
                begun[:] = [self.workers.results(explore_unit, [ScopeUnit(self.subject, scope, num_left, seconds)])]
            elif not begun:
                begun.append(self.workers.results(explore_unit, self._units(scopes, max_transitions, seconds)))
            packed = next(begun[0])
            if isinstance(packed, str):
                raise Unsupported(packed)
            done: SearchResult = unpack(packed)
            return done

        return search

    def _units(self, scopes: Mapping[str, Scope], max_transitions: int, seconds: float) -> Iterator[ScopeUnit]:
        deadline = time.monotonic() + seconds
        for scope in scopes.values():
            yield ScopeUnit(self.subject, scope, max_transitions, max(0.0, deadline - time.monotonic()))
