"""The head of a hunt: it gives the units of walks to workers, and takes their results in the order of the units.

A unit knows what all units before it in its walk have found. Units are begun before the results of those before them
are there, as if these found nothing; when one of them does find something, the units after it are done again with this
knowledge. So the results are those of units that are done one by one, whoever does them, and a walk is the same alone
and beside other walks.

A result that is in the store is not searched again. So a hunt that was killed and is resumed ends as one that was not.

A unit whose workers were lost one after the other ends its walk, as it ends one worker after the other; other walks go
on. The unit is not in the store, so it is tried again when the hunt is resumed.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kvproof.check.hosts.workers import LOSS_IS_A_RESULT, USUAL, Handling, Lack, UnitLost, Workers, results_in
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.unit import INFINITE, Done, Walk, WalkUnit, walk_unit, walked
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.search.random_walk import CALL_SECONDS_MAX
from kvproof.check.search.result import SearchResult


class Here:
    """This process as the only worker: it does a unit when its result is wanted."""

    name = "here"

    def results(
        self,
        do: Callable[[Any], Any],
        units: Iterable[Any],
        handling: Handling = USUAL,
        meanwhile: Iterable[object] = (),
    ) -> Generator[Any, None, None]:
        for unit in units:
            yield from results_in((True, do(unit), ""))
        deque(meanwhile, maxlen=0)

    def close(self) -> None:
        """Nothing was started."""


class Taken(NamedTuple):
    """The result of a unit of a walk. worker: who did it; None if it was in the store."""

    walk: Walk
    unit: WalkUnit
    done: SearchResult
    worker: str | None


class _Given(NamedTuple):
    """A unit whose result is awaited, or in the store."""

    walk: Walk
    unit: WalkUnit
    kept: SearchResult | None


@dataclass
class Head:
    """Who does the units of walks, and where their results are kept.

    lacks: is called with a walk that has a unit which no worker can do, and the reason. on_progress: is called while
    this process does a unit, with the operations of the unit so far. cuts_units: whether the end of the time ends
    units, too.
    """

    workers: Workers
    do: Callable[[WalkUnit], Done | Lack] = walk_unit
    store: ResultStore | None = None
    lacks: Callable[[Walk, str], None] = lambda walk, reason: None
    on_progress: Callable[[int], None] = lambda count: None
    cuts_units: bool = True

    def walk_on(self, walk: Walk, deadline: float = INFINITE) -> Generator[SearchResult, None, None]:
        """The results of one walk to its end. Who takes them adds what they have found to what the walk knows."""
        while walk.is_left and not walk.total.is_unsupported and time.monotonic() < deadline:
            for taken in self.results([walk], deadline=deadline):
                yield taken.done

    def results(
        self, walks: Sequence[Walk], ends: Sequence[float] = (), deadline: float = INFINITE
    ) -> Generator[Taken, None, None]:
        """The results of each walk up to its first finding, the end of its units, or the time.

        ends: the number of the unit before which each walk ends.
        """
        given, over = deque[_Given](), set[Walk]()
        units = self._units(walks, ends, deadline, given, over)
        results = self.workers.results(self.do, units, LOSS_IS_A_RESULT)
        try:
            for done in results:
                yield from self._kept(given, over)
                walk, unit, _ = given.popleft()
                if isinstance(done, Lack | UnitLost):
                    if walk not in over:
                        over.add(walk)
                        walk.lost = done.reason if isinstance(done, Lack) else str(done)
                        self.lacks(walk, walk.lost)
                    if len(over) == len(walks):
                        return
                    continue
                result = done.answer if isinstance(done.answer, SearchResult) else unpack(done.answer)
                if self.store is not None and done.is_whole:
                    self.store.add(unit.key, done.worker, done.seconds, pack(result))
                yield from self._taken(Taken(walk, unit, result, done.worker), over)
                if len(over) == len(walks):
                    return
            yield from self._kept(given, over)
        finally:
            results.close()

    def _units(
        self,
        walks: Sequence[Walk],
        ends: Sequence[float],
        deadline: float,
        given: deque[_Given],
        over: set[Walk],
    ) -> Iterator[WalkUnit]:
        """The units that are not in the store. Each is noted, and those in the store too, in the order of the walks."""
        for walk, end in zip(walks, ends or [INFINITE] * len(walks), strict=True):
            for unit in walk.units(end):
                left = deadline - time.monotonic()
                if left <= 0 or walk in over:
                    break
                kept = None if self.store is None else self.store.result_of(unit.key, SearchResult)
                given.append(_Given(walk, unit, kept))
                if kept is None:
                    yield replace(unit, seconds=left) if self.cuts_units else unit
                elif kept.counterexample is not None:
                    break

    def _kept(self, given: deque[_Given], over: set[Walk]) -> Iterator[Taken]:
        """The results at the begin of the line that were in the store."""
        while given and (kept := given[0].kept) is not None:
            walk, unit, _ = given.popleft()
            yield from self._taken(Taken(walk, unit, kept, None), over)

    def _taken(self, taken: Taken, over: set[Walk]) -> Iterator[Taken]:
        """Count a result in its walk, unless the walk has found something that the unit did not know."""
        walk, unit, done, _ = taken
        if walk in over:
            return
        if done.counterexample is not None or done.is_unsupported:
            over.add(walk)
        walk.take(unit, done)
        yield taken


def here(
    make: Callable[[], ManagerSubject], store: ResultStore | None = None, call_seconds: float = CALL_SECONDS_MAX
) -> Head:
    """The head of a hunt whose units are done in this process, with subjects of this factory.

    call_seconds: for an operation of a subject in this process.
    """

    def do(unit: WalkUnit) -> Done:
        began = time.monotonic()
        done = walked(unit, make, head.on_progress, call_seconds)
        seconds = time.monotonic() - began
        return Done(Here.name, seconds, done, seconds < unit.seconds)

    head = Head(Here(), do, store)
    return head
