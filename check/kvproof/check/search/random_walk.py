"""The random walk, the search for volume: run after run, each in a configuration that is drawn for it.

Some of the first runs are repeated and must give the same answers. The seed determines everything.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from time import monotonic
from typing import Any

from kvproof.check.hosts.garbage_collection import collecting_seldom
from kvproof.check.hosts.time_limit import OutOfTime, seconds_left, time_limit_of
from kvproof.check.oracle.firing import is_large
from kvproof.check.oracle.level import LevelJudge
from kvproof.check.oracle.repetition import unrepeated
from kvproof.check.oracle.replay import CallRecorder, Counterexample, ReplayResult, interval_of, located, replay
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Config, Unsupported
from kvproof.check.search import suppression
from kvproof.check.search.lines_run import lines_run
from kvproof.check.search.result import UNLIMITED, MovedLists, SearchResult
from kvproof.check.search.strategies import Strategy
from kvproof.check.search.worlds import (
    LONGEST_LIFE,
    NUM_SMALL_RUNS,
    draw_length,
    draw_small,
    has_large_sizes,
    sizes_of,
)
from kvproof.spec.trace import Operation

CALL_SECONDS_MAX, CALL_SECONDS_MIN = 20.0, 3.0  # for an operation in this process; less with little time
NUM_VAIN_MAX = 1000  # configurations in a row in which the subject does nothing
NUM_REPEATED_RUNS, REPEATED_STEP = 160, 8  # of the first runs one in eight: a walk is short until its first finding
FIRST_REPEATED = 4  # or the last run of a walk that has fewer: many faults are seen in the first runs
NUM_REPEATED_OPERATIONS = 500  # a run of more is not repeated
NUM_NEW_OBJECTS = 10_000  # between two garbage collections; a world that is opened makes the usual 700, which stay


@dataclass(frozen=True)
class WalkOptions:
    """Options of a walk that do not affect which operations are drawn, except `known` and `disabled`.

    first_run: how many runs of the seed are skipped, because an earlier walk did them. begin: returns the list to which
    a run appends each operation before executing it; a list in shared memory survives a crash of the process. keep:
    called after each run with the result so far.
    call_seconds: the time limit of an operation of a subject in this process. known: findings that end their run but
    not the walk; runs are drawn so that most avoid them. disabled: features that no run uses. wanted: the only kind
    of finding that ends the walk; None for every kind. pause_after: the walk ends after the run in which it reaches so
    many operations; another walk can then continue with the next run. runs_before: how many runs earlier walks of the
    search did; of its first `NUM_REPEATED_RUNS` runs one in `REPEATED_STEP` is repeated, if it is short. lives_long:
    its first run has `LONGEST_LIFE` operations, or as many as are left.
    """

    first_run: int = 0
    begin: Callable[[Config], list[Operation]] = lambda config: []
    keep: Callable[[SearchResult], None] = lambda done: None
    call_seconds: float = CALL_SECONDS_MAX
    known: tuple[suppression.KnownFailure, ...] = ()
    disabled: frozenset[str] = frozenset()
    wanted: tuple[str, str] | None = None
    pause_after: int = UNLIMITED
    runs_before: int = 0
    lives_long: bool = False

    def ends(self, found: Counterexample) -> bool:
        """Whether the walk ends with this counterexample."""
        return self.wanted in (None, found.finding.kind) and not self._is_known(found)

    def _is_known(self, found: Counterexample) -> bool:
        try:
            return suppression.is_duplicate(self.known, found)
        except Exception:  # a fault of kvproof: the finding must not be lost with it, so it counts as a new one
            return False


DEFAULT_OPTIONS = WalkOptions()


@collecting_seldom(NUM_NEW_OBJECTS)
def walk(
    strategy: Strategy,
    subject: Any,
    seed: int,
    *,
    max_operations: int,
    seconds: float,
    fixed: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    options: WalkOptions = DEFAULT_OPTIONS,
) -> SearchResult:
    """Do runs until one refutes, so many operations are done, or the time is over, which may end a run.

    fixed: fields that every configuration keeps. progress: called with the number of operations after each run.
    Raises AdapterError.
    """
    began, random = monotonic(), Random(seed)
    for _ in range(options.first_run):
        random.getrandbits(64)
    under_way = _Walk(strategy, subject, fixed, max_operations, began + seconds, options)
    under_way.call_seconds = min(options.call_seconds, max(CALL_SECONDS_MIN, seconds / 4))
    done = under_way.done
    with lines_run(subject) as ran:
        while under_way.is_left():
            if under_way.do(Random(random.getrandbits(64))) and done.counterexample is None:
                options.keep(done)
                if progress:
                    progress(done.num_operations)
    done.lines = ran.by_file()
    done.is_unsupported = not done.num_runs and under_way.is_in_vain
    done.seconds = monotonic() - began
    return done


@dataclass
class _Run:
    """A run that was drawn. judge, parts, moved: once the subject was opened in its configuration."""

    config: Config
    operations: list[Operation]
    length: int
    without: frozenset[str]
    is_repeated: bool
    recorder: CallRecorder | None
    sizes: list[str]
    judge: LevelJudge | None = None
    parts: "Parts | None" = None
    moved: Sequence[MovedLists] = ()


@dataclass
class _Walk:
    """A walk under way. deadline: when its time is over. done: what it did so far. num_vain: since its last run."""

    strategy: Strategy
    subject: Any
    fixed: dict[str, Any] | None
    max_operations: int
    deadline: float
    options: WalkOptions
    call_seconds: float = CALL_SECONDS_MAX
    done: SearchResult = field(default_factory=SearchResult)
    num_vain: int = 0

    @property
    def is_in_vain(self) -> bool:
        """Whether too many configurations in a row were in vain."""
        return self.num_vain > NUM_VAIN_MAX

    def is_left(self) -> bool:
        """Whether the walk goes on with another run."""
        done, end = self.done, min(self.max_operations, self.options.pause_after)
        is_over = done.counterexample is not None or done.num_operations >= end or self.is_in_vain
        return not is_over and monotonic() < self.deadline

    def do(self, random: Random) -> bool:
        """Draw a run and do it. Whether it counts: the configuration was accepted, and something was done or found."""
        run = self._drawn(random)
        self.done.num_drawn += 1
        self.done.sizes.update(run.sizes)
        try:
            found = self._found(run, random)
        except Unsupported as error:
            self.done.refuse(str(error))
            self.num_vain += 1
            return False
        if found is not None:
            found = located(self.subject, found, run.parts.num_good if run.parts else 0)
            if self.options.ends(found):
                self.done.counterexample = found
            elif not run.operations:
                self._add_vain(run, found.finding)
                return False
        self._add(run, found)
        self.num_vain = 0
        return True

    def _drawn(self, random: Random) -> _Run:
        strategy, options, done = self.strategy, self.options, self.done
        without = options.disabled | suppression.disabled_features(random, options.known)
        can, fixed = capabilities_of(self.subject), suppression.plain(self.fixed, without)
        draw = partial(strategy.draw_config, random, can, fixed)
        is_first = options.first_run + done.num_drawn < NUM_SMALL_RUNS
        config = draw_small(draw) if is_first else draw()
        operations = options.begin(config)
        usual, num_left = strategy.run_length, self.max_operations - done.num_operations
        is_usual = is_first and not has_large_sizes(config)
        length = usual if is_usual else draw_length(random, config, usual)
        length = min(num_left, LONGEST_LIFE if options.lives_long and not done.num_operations else length)
        is_repeated = _is_repeated(options.runs_before + done.num_runs + 1, is_last=length == num_left)
        calls = strategy.level.calls.all if is_repeated and not is_large(config) else ()
        recorder = CallRecorder(self.subject, calls, keeps_answers=False) if calls else None
        return _Run(config, operations, length, without, is_repeated, recorder, [*sizes_of(config)])

    def _found(self, run: _Run, random: Random) -> Counterexample | None:
        """Do a run. Raises Unsupported if the subject does not have its configuration."""
        config, operations = run.config, run.operations
        try:
            with time_limit_of(self.subject, self.call_seconds, operations.__len__) as start_time:
                generator = self.strategy.generator(run.recorder or self.subject, random, config, run.without)
                run.judge, run.moved = generator.judge, generator.moved
                run.parts = Parts(run.judge, config, operations, start_time, self.deadline)
                generator.pause = run.parts.end
                generator.run(operations, run.length)
                run.parts.end_run()
            if run.is_repeated and len(operations) <= NUM_REPEATED_OPERATIONS:
                return _repeated_otherwise(self.subject, config, operations, run.recorder)
        except OutOfTime:
            if monotonic() < self.deadline and seconds_left() > 0:  # the subject raised it
                raise
            self.deadline = -inf
        except Finding as finding:
            return Counterexample(config, operations, finding)
        return None

    def _add_vain(self, run: _Run, finding: Finding) -> None:
        """Count a run that could do nothing, because a finding that is known comes first."""
        first = f"{finding.property} is refuted before the first operation: {finding.text}"
        self.num_vain += 1
        self.done.vain[first.partition("\n")[0]] += not self.done.num_runs
        self.done.coverage.update(run.sizes)  # it was seen in them

    def _add(self, run: _Run, found: Counterexample | None) -> None:
        done, operations = self.done, run.operations
        done.num_operations += len(operations)
        done.num_runs += bool(operations)
        done.coverage.update(run.sizes if operations else ())
        ended = operations if found is None else operations[:-1]  # nobody knows whether the last one would have ended
        done.kinds.update(operation[0] for operation in ended)
        if run.judge is not None:
            is_outside = found is not None and bool(found.finding.contract)
            done.coverage.update(self._coverage_before(run) if is_outside else run.judge.coverage)
            done.notes.update(run.judge.notes)
        if not has_large_sizes(run.config):
            for lists in run.moved if found is None else run.moved[:-1]:  # the last ones may be what is wrong
                done.keep_moved(lists)

    def _coverage_before(self, run: _Run) -> Counter[str]:
        """What a run reached before its last operation, of which the subject says that it is not to be judged."""
        judges = list[LevelJudge]()
        with suppress(Unsupported):
            replay(lambda: self.subject, run.config, run.operations[:-1], watch=judges.append, keeps_answers=False)
        return Counter(judges[-1].coverage if judges else ())


def _is_repeated(number: int, *, is_last: bool) -> bool:
    """Whether a run is repeated. number: of the run in its search, from 1. is_last: of its walk."""
    return number <= NUM_REPEATED_RUNS and (
        number % REPEATED_STEP == FIRST_REPEATED or (is_last and number < FIRST_REPEATED)
    )


class Parts:
    """What a walk does after a part of a run: it starts the time again, and lets a sparse judge compare everything.

    deadline: after it the run ends with the part under way. Raises OutOfTime then.
    """

    def __init__(
        self,
        judge: LevelJudge,
        config: Config,
        operations: list[Operation],
        start_time: Callable[[], None],
        deadline: float = inf,
    ) -> None:
        self.judge, self.operations, self.start_time, self.deadline = judge, operations, start_time, deadline
        self.interval = interval_of(config)
        self.num_good = 0  # after so many operations everything was compared
        self.is_sparse = is_large(config)
        if self.is_sparse:
            judge.is_sparse = True

    def end(self) -> None:
        """A part of the run is over."""
        self.start_time()
        if self.is_sparse and len(self.operations) - self.num_good >= self.interval:
            self._compare()
        if monotonic() >= self.deadline:
            raise OutOfTime

    def end_run(self) -> None:
        """The run is over."""
        if self.is_sparse and self.operations:
            self._compare()

    def _compare(self) -> None:
        self.judge.compare_all(self.operations[-1][0])
        self.num_good = len(self.operations)


def _repeated_otherwise(
    subject: Any, config: Config, operations: list[Operation], recorder: CallRecorder | None
) -> Counterexample | None:
    """The finding that the same operations, on the subject opened again, get other answers; None if they do not.

    recorder: has the calls of the run; None if the run was not recorded. Raises AdapterError if the subject refuses the
    configuration now.
    """
    run = None if recorder is None else ReplayResult(recorder.calls)
    try:
        return unrepeated(lambda: subject, config, operations, None, run)
    except Unsupported as error:
        text = "a configuration was accepted, and is refused when the subject is opened in it once more"
        raise AdapterError(f"{text}: {error}. Whether it is refused may depend on the configuration alone") from None
