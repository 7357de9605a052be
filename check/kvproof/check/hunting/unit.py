"""The random walk as units of work, so that several workers can share it (`--workers`).

A unit is a part of the operations of a walk. The seed of the run and the number of the unit give the seed of the unit,
so each unit draws runs of its own, no matter which worker does it. A walk without workers draws other runs, one after
the other from one seed.

Results are taken in the order of the units. A unit avoids the findings of all units before it: when a unit finds
something new, the units after it that have begun already are done again with this knowledge. So the findings and the
counts are those of one worker that does the units one by one.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvproof.check.hosts.limits import Limits
from kvproof.check.hosts.time_limit import search_ends_after
from kvproof.check.hosts.workers import NUM_TRIES_MAX, Workers
from kvproof.check.isolation.factory import factory_for
from kvproof.check.isolation.fork_server_client import may_be_killed_by_others
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.isolation.remote_search import walk
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.search.random_walk import NUM_REPEATED_RUNS, WalkOptions
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.check.search.strategies import strategy_of
from kvproof.check.search.suppression import KnownFailure
from kvproof.check.subjects import SubjectNotReady, UnknownSubject

if TYPE_CHECKING:  # a worker imports this module, and needs no stages
    from kvproof.check.runs.session import StageBudget

NUM_UNITS, OPERATIONS_MIN, OPERATIONS_MAX = 25, 5_000, 20_000  # of a walk; of a unit
NUM_UNITS_AT_END = 4  # what is left of a walk is divided by it, if that makes a smaller unit
NUM_SUBJECTS = 4  # whose processes one worker keeps
SEED_BYTES = 7  # so that a message can hold it


@dataclass(frozen=True)
class Judged:
    """A subject as every worker can make it. budget: of the run, in seconds; it limits a call."""

    name: str
    isolation: bool | None
    budget: float | None = None


@lru_cache(maxsize=NUM_SUBJECTS)
def factory_of(subject: Judged) -> Callable[[], ManagerSubject]:
    """The factory of a subject in this process; a few are kept, because a process of a subject is slow to start."""
    return factory_for(subject.name, subject.isolation, Limits.within(subject.budget))


@dataclass(frozen=True)
class WalkUnit:
    """A part of a walk. known: the findings that its runs avoid. seconds: until it must end, undone."""

    subject: Judged
    seed: int
    index: int
    num_operations: int
    known: tuple[KnownFailure, ...] = ()
    fixed: Mapping[str, Any] | None = None
    seconds: float = float("inf")

    @property
    def need(self) -> str:
        """The subject that a worker must be able to make."""
        return self.subject.name


def seed_of(seed: int, index: int) -> int:
    """The seed of a unit, from the seed of the run and the number of the unit."""
    digest = hashlib.sha256(f"walk {seed} {index}".encode()).digest()
    return int.from_bytes(digest[:SEED_BYTES], "big")


def operations_of_unit(max_operations: int) -> int:
    """How many operations a unit of such a walk does."""
    share = OPERATIONS_MAX if max_operations == UNLIMITED else max_operations // NUM_UNITS
    return min(OPERATIONS_MAX, max(OPERATIONS_MIN, share))


def operations_of_next_unit(max_operations: int, num_before: int) -> int:
    """How many operations the unit does that begins after so many: fewer near the end, so that workers end together."""
    left = max_operations - num_before
    return min(left, operations_of_unit(max_operations), max(OPERATIONS_MIN, left // NUM_UNITS_AT_END))


def make_ready(subject: Judged) -> None:
    """Start the process from which the subject's processes are forked."""
    factory_of(subject)


def walk_unit(unit: WalkUnit) -> list[Any]:
    """Do a unit: its walks as packed `SearchResult`s, each up to a finding, the last up to the end of the unit.

    A finding of a property and mechanism that this unit has found before is not reported again.
    """
    return [pack(done) for done in unless_killed(lambda: _walks(unit))]


def _walks(unit: WalkUnit) -> list[SearchResult]:
    make, fixed = factory_of(unit.subject), dict(unit.fixed) if unit.fixed else None
    strategy, known, total = strategy_of(make()), list(unit.known), SearchResult()
    deadline, walks = time.monotonic() + unit.seconds, list[SearchResult]()
    while total.num_operations < unit.num_operations and (left := deadline - time.monotonic()) > 0:
        runs_before = NUM_REPEATED_RUNS if unit.index else total.num_runs  # only the first unit repeats runs
        options = WalkOptions(total.num_drawn, known=tuple(known), runs_before=runs_before)
        bounds: dict[str, Any] = {"max_operations": unit.num_operations - total.num_operations, "seconds": left}
        with search_ends_after(left):
            done = walk(strategy, make(), seed_of(unit.seed, unit.index), fixed=fixed, options=options, **bounds)
        total.continue_with(done)
        walks.append(done)
        if done.counterexample is None:
            break
        known.append((*done.counterexample.kind, ()))
    return walks


def unless_killed(search: Callable[[], list[SearchResult]]) -> list[SearchResult]:
    """The results of a search; it is done again if something else may have ended the process of the subject.

    If that process is killed again in the same way, the subject did it, and the results say so. A process that was not
    ready in time gets further tries, too.
    """
    before: list[tuple[str, str]] = []
    for is_last in (False,) * (NUM_TRIES_MAX - 1) + (True,):
        try:
            results = search()
        except UnknownSubject as error:
            is_chance = isinstance(error, SubjectNotReady) or may_be_killed_by_others(str(error))
            if is_last or not is_chance:
                raise
            continue
        found = [done.counterexample for done in results if done.counterexample is not None]
        killed = [one.kind for one in found if may_be_killed_by_others(str(one.finding.text))]
        if not killed or killed == before:
            break
        before = killed
    return results


@dataclass
class WalkUnits:
    """The walk of a subject by workers."""

    workers: Workers
    subject: Judged

    def __call__(
        self,
        stint: "StageBudget",
        max_operations: int,
        fixed: Mapping[str, Any] | None,
        known: Mapping[KnownFailure, None],
        deadline: float,
    ) -> Iterator[SearchResult]:
        """The walks of the units, in order. known: the findings to avoid; the caller adds what it takes from here."""
        num_done = num_runs = index = 0
        while num_done < max_operations and time.monotonic() < deadline:
            avoided = tuple(known)
            units = self._units(stint.seed, index, num_done, max_operations, fixed, avoided, deadline)
            results = self.workers.results(walk_unit, units)
            for walks in results:
                index += 1
                for done in map(unpack, walks):
                    num_done, num_runs = num_done + done.num_operations, num_runs + done.num_runs
                    done.is_unsupported = done.is_unsupported and not num_runs
                    yield done
                stint.advance(num_done)
                if len(known) > len(avoided):
                    break
            results.close()

    def _units(
        self,
        seed: int,
        index: int,
        num_before: int,
        max_operations: int,
        fixed: Mapping[str, Any] | None,
        known: tuple[KnownFailure, ...],
        deadline: float,
    ) -> Iterator[WalkUnit]:
        while num_before < max_operations and (left := deadline - time.monotonic()) > 0:
            num_operations = operations_of_next_unit(max_operations, num_before)
            yield WalkUnit(self.subject, seed, index, num_operations, known, fixed, left)
            index, num_before = index + 1, num_before + num_operations
