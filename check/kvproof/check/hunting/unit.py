"""A unit: the only thing that a hunt does. It is a value with a key, and its result depends on this value alone.

There are three kinds: runs of a walk, the search of scopes (`scope_unit`), and the search for a shorter run of a
finding. It does not matter which process does a unit, how often, or beside which others. So a hunt finds the same in
this process, with any number of workers, and when it is resumed from the results that are kept by their keys.

The units of a walk are numbered. The seed of the hunt and the number give the seed of the runs, and the size depends on
the number alone: a longer walk begins with the units of a shorter one. A unit that ends at a finding is followed by
another one with the rest of its runs, which avoids this finding.
"""

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any

import msgspec

from kvproof.check.hosts.fork_client import may_be_killed_by_others
from kvproof.check.hosts.time_limit import Limits, search_ends_after
from kvproof.check.hosts.workers import NUM_TRIES_MAX, Lack, code_digest
from kvproof.check.isolation.factory import factory_for
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.isolation.remote_search import shortest, walk
from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.search.random_walk import CALL_SECONDS_MAX, NUM_REPEATED_RUNS, WalkOptions
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import STRATEGIES, strategy_of
from kvproof.check.search.suppression import Features, KnownFailure
from kvproof.check.search.worlds import LONGEST_LIFE, NUM_SMALL_RUNS
from kvproof.check.subjects import SubjectNotReady, UnknownSubject
from kvproof.check.subjects.content import content_of

SMALL, NUM_SMALL, LARGE = 5_000, 8, 20_000  # operations of the first units, how many these are, and of the later ones
NUM_LARGE = 20  # of these; then comes one with a run of LONGEST_LIFE operations, and so on
CYCLE = NUM_LARGE * LARGE + LONGEST_LIFE  # the operations of these units
LONG = 12  # operations; for a longer run, other walks look for a shorter one
NUM_WALKS_MAX = 4  # of these walks
NUM_SUBJECTS = 4  # whose processes one worker keeps
SEED_BYTES = 7  # so that a message can hold it
INFINITE = float("inf")


@dataclass(frozen=True)
class Judged:
    """A subject as every worker can make it. budget: of the run, in seconds; it limits a call."""

    name: str
    isolation: bool | None = None
    budget: float | None = None

    @cached_property
    def content(self) -> str:
        """A digest of its code when the first key was made of it; a run without a store makes none."""
        return content_of(self.name)


@lru_cache(maxsize=NUM_SUBJECTS)
def factory_of(subject: Judged) -> Callable[[], ManagerSubject]:
    """The factory of a subject in this process; a few are kept, because a process of a subject is slow to start."""
    return factory_for(subject.name, subject.isolation, Limits.within(subject.budget))


def make_ready(subject: Judged) -> None:
    """Start the process from which the subject's processes are forked."""
    factory_of(subject)


def key_of(kind: str, subject: Judged, *parts: Any) -> str:
    """The key of a unit. parts: what its result depends on, apart from the subject and kvproof itself."""
    about = [code_digest(), kind, subject.name, subject.isolation, subject.content, *parts]
    return hashlib.sha256(msgspec.json.encode(about)).hexdigest()


@dataclass(frozen=True)
class Done:
    """A unit that was done, and by whom. answer: packed. is_whole: the time did not end it."""

    worker: str
    seconds: float
    answer: Any
    is_whole: bool = True


# Runs of a walk ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WalkUnit:
    """Runs of a walk, until one of them refutes or so many operations are done.

    first_run: how many runs of this seed were done before. runs_before: how many the walk did, as far as it matters for
    the repetition of its first runs. known: the findings that the runs avoid. seconds: until it must end, undone.
    """

    subject: Judged
    seed: int
    index: int
    num_operations: int
    known: tuple[KnownFailure, ...] = ()
    fixed: Mapping[str, Any] | None = None
    first_run: int = 0
    runs_before: int = 0
    seconds: float = INFINITE

    @property
    def need(self) -> str:
        """The subject that a worker must be able to make."""
        return self.subject.name

    @property
    def key(self) -> str:
        """Equal for units with equal results."""
        place = self.seed, self.index, self.first_run, self.runs_before, self.num_operations
        return key_of("walk", self.subject, *place, self.known, sorted((self.fixed or {}).items()))


def seed_of(seed: int, index: int) -> int:
    """The seed of a unit, from the seed of the hunt and the number of the unit; the first unit has that of the hunt."""
    if not index:
        return seed
    digest = hashlib.sha256(f"walk {seed} {index}".encode()).digest()
    return int.from_bytes(digest[:SEED_BYTES], "big")


def size_of(index: int) -> int:
    """How many operations a unit with this number does: few in the first ones, so that several workers have some."""
    return SMALL if index < NUM_SMALL else LONGEST_LIFE if lives_long(index) else LARGE


def lives_long(index: int) -> bool:
    """Whether the unit with this number has the longest life, by which a default hunt ends."""
    return index >= NUM_SMALL and (index - NUM_SMALL) % (NUM_LARGE + 1) == NUM_LARGE


def num_units_of(max_operations: int) -> int:
    """How many units a walk of so many operations has."""
    few = -(-max_operations // SMALL)
    if few <= NUM_SMALL:
        return few
    num_cycles, num_left = divmod(max_operations - NUM_SMALL * SMALL, CYCLE)
    return NUM_SMALL + num_cycles * (NUM_LARGE + 1) + min(-(-num_left // LARGE), NUM_LARGE + 1)


@dataclass(eq=False)
class Walk:
    """A walk, and how far it is.

    known: the findings that its runs avoid from now on. found: what ended its units. total: what these did. lost: why a
    unit of it cannot be done, which ends the walk.
    """

    subject: Judged
    seed: int
    max_operations: int
    fixed: Mapping[str, Any] | None = None
    known: list[KnownFailure] = field(default_factory=list)
    found: list[Counterexample] = field(default_factory=list)
    total: SearchResult = field(default_factory=SearchResult)
    lost: str = ""
    index: int = 0  # of the next unit
    _begin: int = 0  # the operations of the units before it
    _part: SearchResult = field(default_factory=SearchResult)  # what was done of it, up to a finding

    @property
    def is_left(self) -> bool:
        """Whether a unit is left."""
        return self._begin < self.max_operations and not self.lost

    def avoid(self, found: Counterexample, features: Features) -> None:
        """Later runs avoid this finding, which needs these features."""
        self.known.append((*found.kind, features))

    def units(self, end: float = INFINITE) -> Iterator[WalkUnit]:
        """The units that are left before this number, as they are if none of them finds anything."""
        known, begin, part = tuple(sorted(set(self.known))), self._begin, self._part
        for index in count(self.index):
            left = min(size_of(index), self.max_operations - begin)
            if index >= end or left <= 0:
                return
            first_run, runs = part.num_drawn, part.num_runs
            if index:  # only the first unit has small runs and repeated ones
                first_run, runs = NUM_SMALL_RUNS + first_run, NUM_REPEATED_RUNS
            num = left - part.num_operations
            yield WalkUnit(self.subject, self.seed, index, num, known, self.fixed, first_run, runs)
            begin, part = begin + left, SearchResult()

    def take(self, unit: WalkUnit, done: SearchResult) -> None:
        """Count the result of the next unit."""
        done.is_unsupported = done.is_unsupported and not self.total.num_runs + done.num_runs
        self.total.continue_with(done)
        self._part.continue_with(done)
        if done.counterexample is not None:
            self.found.append(done.counterexample)
        if done.counterexample is None or done.num_operations >= unit.num_operations:
            self._begin += min(size_of(self.index), self.max_operations - self._begin)
            self.index += 1
            self._part = SearchResult()


def walked(
    unit: WalkUnit,
    make: Callable[[], ManagerSubject],
    progress: Callable[[int], None] | None = None,
    call_seconds: float = CALL_SECONDS_MAX,
) -> SearchResult:
    """Do a unit of a walk with subjects of this factory. call_seconds: for an operation in this process."""
    options = WalkOptions(
        unit.first_run,
        known=unit.known,
        runs_before=unit.runs_before,
        call_seconds=call_seconds,
        lives_long=lives_long(unit.index),
    )
    limits: dict[str, Any] = {"fixed": dict(unit.fixed) if unit.fixed else None, "progress": progress}
    with search_ends_after(unit.seconds):
        subject = make()
        return walk(
            strategy_of(subject),
            subject,
            seed_of(unit.seed, unit.index),
            max_operations=unit.num_operations,
            seconds=unit.seconds,
            options=options,
            **limits,
        )


def walk_unit(unit: WalkUnit) -> Done:
    """Do a unit of a walk in a worker."""
    began = time.monotonic()
    done = unless_killed(lambda: walked(unit, factory_of(unit.subject)))
    seconds = time.monotonic() - began
    return Done(f"{platform.node()}:{os.getpid()}", seconds, pack(done), seconds < unit.seconds)


def walk_unit_if_possible(unit: WalkUnit) -> Done | Lack:
    """As `walk_unit`. A worker that cannot make the subject says why."""
    try:
        return walk_unit(unit)
    except (UnknownSubject, AdapterError) as error:
        return Lack(str(error), unit.need)


def unless_killed(search: Callable[[], SearchResult]) -> SearchResult:
    """The result of a search; it is done again if something else may have ended the process of the subject.

    If that process is killed again in the same way, the subject did it, and the result says so. A process that was not
    ready in time gets further tries, too.
    """
    before: tuple[str, str] | None = None
    for is_last in (False,) * (NUM_TRIES_MAX - 1) + (True,):
        try:
            done = search()
        except UnknownSubject as error:
            is_chance = isinstance(error, SubjectNotReady) or may_be_killed_by_others(str(error))
            if is_last or not is_chance:
                raise
            continue
        found = done.counterexample
        if found is None or not may_be_killed_by_others(str(found.finding.text)) or found.kind == before:
            break
        before = found.kind
    return done


# A shorter run of a finding ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShortenUnit:
    """A finding whose shortest run is wanted. found: packed. max_operations: of all replays. fixed: see `Saving`."""

    subject: Judged
    seed: int
    found: Any
    max_operations: int
    fixed: tuple[str, ...] = ()

    @property
    def need(self) -> str:
        """The subject that a worker must be able to make."""
        return self.subject.name

    @property
    def key(self) -> str:
        """Equal for units with equal results."""
        return key_of("shorten", self.subject, self.seed, self.found, self.max_operations, *self.fixed)


def shorten_unit(unit: ShortenUnit) -> Any:
    """The shortest run of the finding, packed."""
    found: Counterexample = unpack(unit.found)
    return pack(shortened(found, factory_of(unit.subject), unit.seed, unit.max_operations, fixed=unit.fixed))


def shortened(
    found: Counterexample,
    make: Callable[[], ManagerSubject],
    seed: int,
    max_operations: int,
    seconds: float = INFINITE,
    fixed: tuple[str, ...] = (),
) -> Counterexample:
    """The shortest run of the finding that so many operations and seconds find. fixed: as in `Saving`."""
    strategy = STRATEGIES[level_of_config(found.config).name]
    bounds: dict[str, Any] = {"seconds": seconds, "max_operations": max_operations, "fixed": fixed}
    return shortest(strategy, make, found, seed=seed, long=LONG, walks=NUM_WALKS_MAX, **bounds)
