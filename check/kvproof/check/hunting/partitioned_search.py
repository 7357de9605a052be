"""An exhaustive search of the specification whose states are divided among workers.

Each worker owns a part of the states, by the hash of their canonical form, and expands them (`search.exhaustive.part`).
This process carries batches of states from part to part, and the search goes level by level: a level ends when every
part has expanded its states and taken its batches.

At the end of each level, a part sends what it has found to a folder of this process. The part of a worker that is lost
gets this back, and the batches that it was given in this level, and does the level again; what it sends a second time
is dropped as known, and what it counted in this level before is not counted. So nothing depends on who is lost.
"""

import heapq
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.check.hosts.worker_process import ScratchFolder
from kvproof.check.hosts.workers import NUM_TRIES_MAX, Actors, Lost, Make, Request, StatefulWorkers, WorkerLost
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.errors import UsageError
from kvproof.check.search.exhaustive.part import End, Order, PartLevel, Place, PythonPart, Round, num_values_of
from kvproof.check.search.exhaustive.specification_space import asks_claims, note_claims
from kvproof.check.search.result import UNLIMITED, SearchResult

ROUND_SECONDS = 0.5


class PartReading(NamedTuple):
    """How one reader searches parts.

    make: makes a part. confirm: from a finding, if a part has said it, and what is known of each state on the way to
    it, from the first one. compare: compares states that a part has expanded with the other reader, and raises an
    exception if the two differ. num_compared: how many states it gets, about, after a search without a finding.
    """

    make: Make
    confirm: Callable[[Finding | None, list[Any]], Counterexample | None]
    compare: Callable[[list[bytes]], None] | None = None
    num_compared: int = 0


@dataclass
class _Part:
    """What the head knows of one part.

    inbox: batches for the next round. is_done: it has no state left to expand. level: what it has found, once it has
    ended the level. counted: what it did in this level. num_lost: how often its worker was lost in this level.
    """

    inbox: list[tuple[int, bytes]] = field(default_factory=list)
    is_done: bool = False
    level: PartLevel | None = None
    counted: Counter[str] = field(default_factory=Counter)
    num_transitions: int = 0
    num_states: int = 0
    num_states_before: int = 0
    num_lost: int = 0
    end: End | None = None
    finding: Finding | None = None


class PartitionedSearch:
    """One search by actors that hold its parts. folder: for what the parts have found."""

    def __init__(self, actors: Actors, reading: PartReading, folder: Path) -> None:
        self.actors, self.reading, self.folder = actors, reading, folder
        self.parts = [_Part() for _ in range(actors.num)]
        self.depth = -1  # of the states that are expanded now; the initial state is found at depth -1
        self.ranks: list[array[int]] = [array("q") for _ in self.parts]
        self.result = SearchResult()
        self.stopped, self.reads_left_out = "", ""
        self.num_bytes = 0

    def run(self, seconds: float, max_transitions: int, progress: Callable[[int], None] | None) -> SearchResult:
        """Search for so many seconds and transitions. A round that has begun is ended and counted."""
        began = time.perf_counter()
        for part in self.parts:
            part.is_done = True  # the initial state is new to its part, and there is nothing to expand
        while True:
            found = self._search_level(began + seconds, max_transitions, progress)
            if found is not None or self.stopped or self._is_cut_short():
                break
            self._count()
            self.result.num_states += sum(_level(part).num_new for part in self.parts)
            self.num_bytes = sum(_level(part).num_bytes for part in self.parts)
            if not any(_level(part).num_new for part in self.parts):
                self.result.is_exhausted = True
                break
            self.depth += 1
            self._begin_level()
        result = self.result
        result.depth = max(0, self.depth)
        if found is not None:
            self._refuted(*found)
        else:
            if not result.is_exhausted:
                self._count_all()
            self._compare()
        result.seconds = time.perf_counter() - began
        return result

    def _is_cut_short(self) -> bool:
        return any(part.level is None for part in self.parts)

    # A level -------------------------------------------------------------------------------------------------------

    def _search_level(
        self, deadline: float, max_transitions: int, progress: Callable[[int], None] | None
    ) -> tuple[End, Finding | None] | None:
        """Let every part end the level; where the first finding ends it, and which. It may return earlier."""
        while self._is_cut_short():
            left = deadline - time.perf_counter()
            num_transitions = self.result.num_operations + sum(part.num_transitions for part in self.parts)
            if left <= 0 or num_transitions >= max_transitions:
                return None
            self._take(self.actors.answers(self._requests(min(left, ROUND_SECONDS))))
            if self.stopped:
                return None
            for part in self.parts:
                if part.end is not None and part.finding is None:
                    return part.end, None  # its part keeps no order, so no other finding comes before it
            if progress is not None:
                progress(sum(part.num_states for part in self.parts))
        ends = [(one.end, one.finding) for part in self.parts for one in (part, _level(part)) if one.end is not None]
        return min(ends, key=lambda one: one[0][0], default=None)

    def _requests(self, seconds: float) -> dict[int, Request]:
        """What each part does next: a round, or the end of the level if no part has a state or a batch left."""
        rounds: dict[int, Request] = {}
        for number, part in enumerate(self.parts):
            if not part.is_done or part.inbox:
                rounds[number] = "round", (part.inbox, seconds)
                part.inbox = []
        if rounds:
            return rounds
        return {number: ("end_level", ()) for number, part in enumerate(self.parts) if part.level is None}

    def _take(self, answers: dict[int, Any]) -> None:
        for number, answer in answers.items():
            part = self.parts[number]
            if answer is Lost.LOST:
                self._restore(number)
            elif isinstance(answer, Round):
                part.is_done, part.num_states = answer.is_done, answer.num_states
                part.num_transitions += answer.num_transitions
                part.counted.update(answer.coverage)
                if answer.end is not None:
                    part.end, part.finding = answer.end, answer.finding
                self.stopped = self.stopped or answer.stopped
                self.reads_left_out = self.reads_left_out or answer.reads_left_out
                for owner, batch in answer.batches.items():
                    if self.parts[owner].level is None:  # else a part that was lost sends it a second time
                        self.parts[owner].inbox.append((number, batch))
                        with self._log(owner).open("ab") as log:
                            log.write(number.to_bytes(4, "little") + len(batch).to_bytes(8, "little") + batch)
            else:
                part.level = answer
                part.num_states = part.num_states_before + answer.num_new
                self.stopped = self.stopped or answer.stopped

    def _begin_level(self) -> None:
        """Keep what the parts have found, and give the new states their ranks: the order of what has found them."""
        orders = [[(order, number) for order in _level(part).orders] for number, part in enumerate(self.parts)]
        self.ranks = [array("q") for _ in self.parts]
        for rank, (_, number) in enumerate(heapq.merge(*orders)):
            self.ranks[number].append(rank)
        for number, part in enumerate(self.parts):
            level = _level(part)
            self._kept(number, self.depth).write_bytes(level.kept)
            self._frontier(number).write_bytes(level.frontier)
            self._log(number).unlink(missing_ok=True)
            before = part.num_states_before + level.num_new
            self.parts[number] = _Part(num_states=before, num_states_before=before)
        requests: dict[int, Request] = {n: ("begin_level", (ranks,)) for n, ranks in enumerate(self.ranks)}
        for number, answer in self.actors.answers(requests).items():
            if answer is Lost.LOST:
                self._restore(number)

    # Workers that are lost -----------------------------------------------------------------------------------------

    def _restore(self, number: int) -> None:
        """Make the part of a lost worker again, as it was at the begin of the level. Raises WorkerLost."""
        part = self.parts[number]
        self.parts[number] = again = _Part(num_lost=part.num_lost + 1, is_done=self.depth < 0)
        again.num_states = again.num_states_before = part.num_states_before
        if again.num_lost >= NUM_TRIES_MAX:
            raise WorkerLost(f"{again.num_lost} workers ended with the same part of the states in one level")
        self.actors.replace(number)
        for depth in range(self.depth + 1):
            is_last = depth == self.depth
            frontier = self._frontier(number).read_bytes() if is_last else b""
            request: Request = "restore", (self._kept(number, depth).read_bytes(), frontier)
            if self.actors.answers({number: request})[number] is Lost.LOST:
                self._restore(number)
                return
        if self.actors.answers({number: ("begin_level", (self.ranks[number],))})[number] is Lost.LOST:
            self._restore(number)
            return
        again.inbox = self._logged(number)

    def _kept(self, number: int, depth: int) -> Path:
        return self.folder / f"{number}-{depth}"

    def _frontier(self, number: int) -> Path:
        return self.folder / f"{number}-frontier"

    def _log(self, number: int) -> Path:
        return self.folder / f"{number}-batches"

    def _logged(self, number: int) -> list[tuple[int, bytes]]:
        """The batches that a part was given in this level."""
        batches: list[tuple[int, bytes]] = []
        if self._log(number).exists():
            with self._log(number).open("rb") as log:
                while head := log.read(12):
                    batches.append((int.from_bytes(head[:4], "little"), log.read(int.from_bytes(head[4:], "little"))))
        return batches

    # A finding -----------------------------------------------------------------------------------------------------

    def _refuted(self, end: End, finding: Finding | None) -> None:
        """Set the counterexample, and the counts up to it; those of parts without an order are all that they did."""
        has_order, path = finding is not None, list[Any]()
        order: Order = end[0]
        place: Place | None = end[1]
        while place is not None:
            place, how = self._asked(place[0], ("came_from", (place[1],)), has_order)
            path.insert(0, how)
        self.result.counterexample = self.reading.confirm(finding, path)
        if not has_order:
            self._count_all()
            return
        for number in range(self.actors.num):
            num_states, num_transitions, counted = self._asked(number, ("up_to", (order,)), True)
            self.result.num_states += num_states
            self.result.num_operations += num_transitions
            self.result.coverage.update(counted)

    def _compare(self) -> None:
        compare, num = self.reading.compare, -(-self.reading.num_compared // self.actors.num)
        if compare is not None:
            for number in range(self.actors.num):
                compare(self._asked(number, ("expanded", (num,)), False))

    def _count_all(self) -> None:
        """Count everything that was done in the level that was not ended."""
        self.result.num_states = sum(part.num_states for part in self.parts)
        self._count()

    def _count(self) -> None:
        self.result.num_operations += sum(part.num_transitions for part in self.parts)
        for part in self.parts:
            self.result.coverage.update(part.counted)

    def _asked(self, number: int, request: Request, needs_level: bool) -> Any:
        """The answer of a part. needs_level: a part that is lost does its level again before it answers."""
        while (answer := self.actors.answers({number: request})[number]) is Lost.LOST:
            self._restore(number)
            while needs_level and self._is_cut_short():
                self._take(self.actors.answers(self._requests(ROUND_SECONDS)))
        return answer


def _level(part: _Part) -> PartLevel:
    assert part.level is not None
    return part.level


@dataclass
class PartitionedReader:
    """Searches scopes of the specification with workers.

    num_states_max: what each part may hold. num_bytes_max: of all parts of the C reader; None: it is read in Python.
    """

    workers: StatefulWorkers
    num_states_max: int
    num_bytes_max: int | None = None

    def __call__(
        self,
        scope: Scope,
        *,
        seconds: float,
        max_transitions: int = UNLIMITED,
        progress: Callable[[int], None] | None = None,
    ) -> SearchResult:
        """Search a scope for so many seconds and transitions."""
        with ExitStack() as ending:
            reading = self._in_python(scope) if self.num_bytes_max is None else self._in_c(scope)
            actors = self.workers.actors(reading.make)
            ending.callback(actors.close)
            folder = ending.enter_context(ScratchFolder("kvproof-levels-"))
            search = PartitionedSearch(actors, reading, Path(folder))
            found = search.run(seconds, max_transitions, progress)
        note_claims(found, are_asked=self.num_bytes_max is not None or asks_claims(scope))
        size = f" and {search.num_bytes / 1e6:,.1f} MB" if search.num_bytes else ""
        held = f"{actors.num} parts of at most {self.num_states_max:,} states hold {found.num_states:,} states{size}"
        if search.reads_left_out:
            found.is_exhausted, found.text = False, search.reads_left_out
        elif found.is_exhausted:
            found.text = f"exhausted: {held}"
        elif search.stopped:
            found.text = f"stopped at depth {found.depth}, because a part has reached {search.stopped}: {held}"
        return found

    def _in_python(self, scope: Scope) -> PartReading:
        if num_values_of(scope) ** (scope.num_tokens + 1) > sys.maxsize:
            raise UsageError(
                f"identities of {scope.num_tokens} tokens and {scope.num_seqs} sequences are too many to share them "
                "among workers; take a smaller scope, leave out --workers, or add --reader c"
            )

        def confirm(finding: Finding | None, path: list[Any]) -> Counterexample:
            assert finding is not None
            operations = [*path[1:], *([finding.tried] if finding.tried else [])]
            return Counterexample(scope.config, operations, finding)

        return PartReading(partial(PythonPart, scope, self.num_states_max), confirm)

    def _in_c(self, scope: Scope) -> PartReading:
        from kvproof.check.search.exhaustive.c_reader import comparison, exploration
        from kvproof.check.search.exhaustive.c_reader.exploration import CPart
        from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, in_use

        spec = SpecificationInC(scope)
        assert self.num_bytes_max is not None
        with in_use:
            comparison.compare_searches(spec, exploration.NUM_COMPARED)

        def confirm(finding: Finding | None, path: list[Any]) -> Counterexample | None:
            with in_use:
                spec.prepare()
                return exploration.confirmed(spec, path)

        def compare(strings: list[bytes]) -> None:
            with in_use:
                spec.prepare()
                comparison.compare_states(spec, strings)

        make = partial(CPart, scope, self.num_bytes_max, self.num_states_max)
        return PartReading(make, confirm, compare, exploration.NUM_COMPARED)
