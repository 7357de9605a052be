"""The exhaustive search of scopes as units of work, with the results in the order of the scopes.

In a gate each scope is a unit. The scopes of a hunt share their transitions, so one unit searches them one after the
other; its result does not depend on the units of the walk, so workers can do these beside it.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.check.hosts.time_limit import search_ends_after
from kvproof.check.hosts.workers import LOSS_IS_A_RESULT, UnitLost, WorkerLost, Workers
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.unit import Judged, factory_of, key_of, unless_killed
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.isolation.remote_search import explore
from kvproof.check.protocol.finding import FindingKey
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import strategy_of

EXPLORER = "explorer"
OnCount = Callable[[int], None]
Past = tuple[FindingKey, ...]  # excused findings, which do not end a search
Search = Callable[[Scope, float, int, OnCount, Past], SearchResult]  # of a scope: seconds, transitions, progress


@dataclass(frozen=True)
class ScopeUnit:
    """Scopes to search one after the other, with so many transitions together, until one is not left.

    seconds: until the search must end. stops_at_first: no scope is searched after one with a finding.
    """

    subject: Judged
    scopes: tuple[Scope, ...]
    max_transitions: int
    seconds: float
    stops_at_first: bool = False
    past: Past = ()

    @property
    def need(self) -> str:
        """The subject that a worker must be able to make."""
        return self.subject.name


def explore_unit(unit: ScopeUnit) -> list[Any]:
    """The packed result of each search that began, or why the subject does not support the scope, as a text."""
    deadline, num_left, found = time.monotonic() + unit.seconds, unit.max_transitions, list[Any]()
    for scope in unit.scopes:
        seconds = max(0.0, deadline - time.monotonic())
        if found and (num_left <= 0 or not seconds):
            break
        try:
            done = _explored(unit, scope, num_left, seconds)
        except Unsupported as error:
            found.append(str(error))
            continue
        found.append(pack(done))
        num_left -= done.num_operations
        if unit.stops_at_first and done.finding is not None:
            break
    return found


def _explored(unit: ScopeUnit, scope: Scope, max_transitions: int, seconds: float) -> SearchResult:
    bounds: dict[str, Any] = {"seconds": seconds, "max_transitions": max_transitions, "past": unit.past}

    def search() -> SearchResult:
        one = factory_of(unit.subject)()
        with search_ends_after(seconds):
            return explore(strategy_of(one), one, scope, **bounds)

    return unless_killed(search)


@dataclass
class ScopeUnits:
    """The searches of a subject's scopes by workers."""

    workers: Workers
    subject: Judged

    def search_of(self, scopes: Mapping[str, Scope], max_transitions: int) -> Search:
        """A function that gives the result of each scope of a gate, called in the order of the scopes.

        A scope may be passed over. max_transitions: of each scope. Later scopes begin before they are asked for.
        """
        begun: list[Iterator[tuple[Scope, Any]]] = []

        def search(scope: Scope, seconds: float, num_left: int, progress: OnCount, past: Past = ()) -> SearchResult:
            if past:
                return self._again(scope, seconds, num_left, past)
            if not begun:
                left = [*scopes.values()][[*scopes.values()].index(scope) :]  # those before it are in the store
                units = self._units(left, max_transitions, seconds)
                begun.append(zip(left, self.workers.results(explore_unit, units, LOSS_IS_A_RESULT), strict=False))
            return _result(next(done for one, done in begun[0] if one == scope))

        return search

    def shared_search_of(
        self, scopes: Mapping[str, Scope], max_transitions: int, stops_at_first: bool, is_resumed: bool = False
    ) -> Search:
        """As `search_of`, of a hunt. max_transitions: of all scopes together.

        Without a time limit, and unless the first finding ends the hunt or a part of it is done, the search begins now.
        """
        begun: list[Iterator[Any]] = []
        found, places = deque[tuple[Scope, Any]](), {scope: place for place, scope in enumerate(scopes.values())}
        left: tuple[Scope, ...] = ()

        def begin(first: int, num_left: int, seconds: float) -> None:
            nonlocal left
            left = tuple(scopes.values())[first:]
            unit = ScopeUnit(self.subject, left, num_left, seconds, stops_at_first)
            begun.append(self.workers.results(explore_unit, [unit], LOSS_IS_A_RESULT))

        if scopes and not is_resumed and self.is_beside_the_walk(stops_at_first):
            begin(0, max_transitions, math.inf)

        def search(scope: Scope, seconds: float, num_left: int, progress: OnCount, past: Past = ()) -> SearchResult:
            if past:
                return self._again(scope, seconds, num_left, past)
            _pass_over(found, scope)
            if not found:
                if not begun:
                    begin(places[scope], num_left, seconds)
                done = next(begun.pop())
                each = [done] * len(left) if isinstance(done, UnitLost) else [[packed] for packed in done]
                found.extend(zip(left, each, strict=False))
                _pass_over(found, scope)
            return _result(found.popleft()[1])

        return search

    def _again(self, scope: Scope, seconds: float, num_left: int, past: Past) -> SearchResult:
        """The search of one scope once more, which goes past these findings."""
        unit = ScopeUnit(self.subject, (scope,), num_left, seconds, past=past)
        return _result(next(iter(self.workers.results(explore_unit, [unit], LOSS_IS_A_RESULT))))

    def is_beside_the_walk(self, stops_at_first: bool) -> bool:
        """Whether the search of a hunt is done beside its walk, and not before it."""
        return self.subject.budget is None and not stops_at_first

    def _units(self, scopes: Iterable[Scope], max_transitions: int, seconds: float) -> Iterator[ScopeUnit]:
        deadline = time.monotonic() + seconds
        for scope in scopes:
            yield ScopeUnit(self.subject, (scope,), max_transitions, max(0.0, deadline - time.monotonic()))


def _pass_over(found: deque[tuple[Scope, Any]], scope: Scope) -> None:
    """Drop the results of the scopes before this one, which nobody asked for."""
    while found and found[0][0] != scope:
        found.popleft()


def _result(done_of_unit: list[Any] | UnitLost) -> SearchResult:
    """The result of a unit of one scope. Raises Unsupported, and WorkerLost if the unit was lost."""
    if isinstance(done_of_unit, UnitLost):
        raise WorkerLost(str(done_of_unit))
    (packed,) = done_of_unit
    if isinstance(packed, str):
        raise Unsupported(packed)
    done: SearchResult = unpack(packed)
    return done


def key_of_scope(subject: Judged, scope: Any, max_transitions: int, past: Past = (), judge: str = EXPLORER) -> str:
    """The key of the search of a scope: it is the same whoever does it, and together with which others."""
    return key_of(judge, subject, repr(scope), max_transitions, past)


def kept(search: Search, subject: Judged, store: ResultStore, judge: str = EXPLORER) -> Search:
    """The same search, which finds in the store what was searched before.

    A finding of another judge than the explorer is not kept: no subject has the run.
    """

    def find_or_search(scope: Scope, seconds: float, num_left: int, progress: OnCount, past: Past = ()) -> SearchResult:
        key = key_of_scope(subject, scope, num_left, past, judge)

        def do() -> SearchResult:
            return search(scope, seconds, num_left, progress, past)

        return store.find_or_search(key, do, seconds, keeps_findings=judge == EXPLORER)

    return find_or_search
