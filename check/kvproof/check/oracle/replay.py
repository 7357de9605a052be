"""Replay a given list of operations: what it finds, and what each call of the subject answered.

A long run of a large pool is replayed by a sparse judge (`oracle.oracle`), which compares everything at intervals only.
`located` repeats the last part of such a run with a complete comparison after every operation.

A run adds to the identity of the finding in which it ends: the features of the configuration that it uses.
"""

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

from kvproof.check.hosts.time_limit import OutOfTime, time_limit_of
from kvproof.check.oracle.comparison import unordered
from kvproof.check.oracle.firing import is_large
from kvproof.check.oracle.level import LevelJudge, level_of_config, typed
from kvproof.check.protocol import features
from kvproof.check.protocol.finding import Finding, former_signature, operation_of
from kvproof.check.protocol.manager import Config, Observation, Unsupported
from kvproof.reports.identity import Identity, signature_of
from kvproof.spec.trace import Operation

SECONDS_MAX, HANG_SECONDS_MAX = 20.0, 5.0
NUM_TIMED = 80  # operations for which a time limit holds
NUM_COMPARED_MAX = 200_000  # blocks that the complete comparisons of one run look at before the judge is made sparse
INTERVAL_MIN, BLOCKS_OF_INTERVAL = 16, 8  # a complete comparison comes after one operation for each so many blocks
FORM_VERSION = 2  # of `marshal`: the last one whose bytes depend on nothing but the values


def features_used(config: Config, operations: Iterable[Operation]) -> set[str]:
    """The fields of the configuration that the run uses and could do without.

    Keys, images and encoders are used by prompts; the configuration only allows them.
    """
    used = {f.field for f in features.FEATURES if not f.argument and f.is_on(config)}
    by_argument = {f.argument: f.field for f in features.FEATURES if f.argument}
    for operation in map(typed, operations):
        used.update(field for argument, field in by_argument.items() if operation.has(argument))
    return used


@dataclass(frozen=True)
class Counterexample:
    """A run that refutes a property: its last operation is the one that shows the finding."""

    config: Config
    operations: list[Operation]
    finding: Finding

    @property
    def kind(self) -> tuple[str, str]:
        """The property and the mechanism of the finding."""
        return self.finding.key(self.operations)

    @property
    def identity(self) -> Identity:
        """What makes it the same finding as that of another run."""
        property, mechanism = self.kind
        signature = signature_of(mechanism, features_used(self.config, self.operations))
        return Identity(property, signature, former_signature(self.finding, operation_of(self.operations)))


def interval_of(config: Config) -> int:
    """After how many operations a sparse judge compares everything: a complete comparison costs as much as the pool."""
    return max(INTERVAL_MIN, (config.num_gpu_blocks + config.num_host_blocks) // BLOCKS_OF_INTERVAL)


def is_sparse(config: Config, num_operations: int) -> bool:
    """Whether the judge of a run of so many operations is sparse."""
    num_compared = num_operations * (config.num_gpu_blocks + config.num_host_blocks)
    return is_large(config) and num_compared > NUM_COMPARED_MAX


def applied(
    judge: LevelJudge, config: Config, operations: Sequence[Operation], start_time: Callable[[], None]
) -> Iterator[bool]:
    """Apply the operations one by one, and yield whether each was enabled. Raises Finding and OutOfTime.

    The judge of a long run is sparse up to the last operation. A run is cut where it is refuted, and there every answer
    is judged, as it was when the finding was located.

    start_time: starts the time limit again.
    """
    sparse, interval = is_sparse(config, len(operations)), interval_of(config)
    if sparse:
        judge.is_sparse = True
    for number, operation in enumerate(operations, start=1):
        if sparse and number == len(operations):
            judge.compare_all(operations[number - 2][0])
            judge.is_sparse = False
        is_enabled = judge.apply(operation)
        if sparse and (number % interval == 0 or number == len(operations)):
            judge.compare_all(operation[0])
        if number % NUM_TIMED == 0:
            start_time()
        yield is_enabled


def finding_of(subject: Any, config: Config, operations: Sequence[Operation]) -> Finding | None:
    """The finding of a run on the subject, which is opened again; None if nothing is refuted or it refuses to open.

    Operations that are not enabled are skipped. Raises OutOfTime.
    """
    level = level_of_config(config)
    try:
        with time_limit_of(subject, level.replay_seconds_max) as start_time:
            judge = level.open(subject, config)
            for _ in applied(judge, config, operations, start_time):
                pass
    except Finding as finding:
        return finding
    except Unsupported:
        return None
    return None


def located(subject: Any, found: Counterexample, num_good: int = 0) -> Counterexample:
    """The counterexample of a run, cut after the operation at which a complete comparison first finds something.

    num_good: after so many operations everything was compared, and found as it must be. If the operations after those
    show no earlier finding, everything is compared from the first operation on: what was wrong may have looked right
    again by then. The counterexample is returned as it is if nothing is found earlier, or the time is over before.
    """
    if not is_large(found.config):
        return found
    exact = _compared_from(subject, found, num_good)
    return _compared_from(subject, found, 0) if num_good and len(exact.operations) == len(found.operations) else exact


def _compared_from(subject: Any, found: Counterexample, num_good: int) -> Counterexample:
    """The same with a complete comparison after each operation behind the first `num_good` ones."""
    config, done = found.config, list[Operation]()
    level = level_of_config(config)
    try:
        with time_limit_of(subject, level.replay_seconds_max) as start_time:
            judge = level.open(subject, config)
            for operation in found.operations:
                judge.is_sparse = len(done) < num_good
                if 0 < len(done) == num_good:  # what a sparse judge observed is not complete
                    judge.compare_all(done[-1][0])
                done.append(operation)
                judge.apply(operation)
                if not judge.is_sparse:
                    judge.compare_all(operation[0])
                start_time()
    except Finding as finding:
        return Counterexample(config, done, finding)
    except (Unsupported, OutOfTime):
        pass
    return found


# Replays with every call recorded ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SubjectCall:
    """One call of a subject, and what it answered.

    answer: as data, if it is kept. comparable: what is compared with another run: a text, or bytes from which the text
    is made when somebody reads it, since texts of observations take long.
    """

    name: str
    arguments: tuple[Any, ...]
    answer: Any
    comparable: str | bytes

    @property
    def text(self) -> str:
        """What the call answered, as text."""
        return self.comparable if isinstance(self.comparable, str) else repr(marshal.loads(self.comparable))

    def is_as(self, other: "SubjectCall") -> bool:
        """Whether this is the same call as one of another run."""
        is_same = self.name == other.name and self.arguments == other.arguments
        return is_same or str(self) == str(other)

    def __str__(self) -> str:
        if self.name == "observe":
            return "observe()"
        return f"{self.name}({', '.join(str(argument) for argument in self.arguments)})"


class WatchedSubject:
    """A subject whose calls of these names go through `pass_on`; everything else of it is as it is."""

    def __init__(self, subject: Any, names: Sequence[str]) -> None:
        self._subject, self._names = subject, frozenset(names)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        return partial(self.pass_on, name, found) if name in self._names and callable(found) else found

    def pass_on(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make the call, and return its answer."""
        raise NotImplementedError


class CallRecorder(WatchedSubject):
    """A subject that records each call with its answer, and passes both on. keeps_answers: also as data."""

    def __init__(self, subject: Any, names: Sequence[str], keeps_answers: bool) -> None:
        super().__init__(subject, names)
        self._keeps_answers = keeps_answers
        self.calls: list[SubjectCall] = []

    def pass_on(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make the call, and record it with its answer."""
        try:
            answer = call(*arguments)
        except BaseException as error:
            self.calls.append(SubjectCall(name, arguments, None, f"{type(error).__name__} raised"))
            raise
        data = _copy_of(answer) if self._keeps_answers else None
        self.calls.append(SubjectCall(name, arguments, data, _form_of(answer, name)))
        return answer


def _copy_of(answer: Any) -> Any:
    """The answer as it is now: a subject may go on to change the tables that it returned."""
    return deepcopy(answer) if isinstance(answer, Observation) else answer


def _form_of(answer: Any, call: str) -> str | bytes:
    """What is compared of an answer: bytes of an observation of plain data, since they are made fast; else its text."""
    with suppress(TypeError, ValueError, AttributeError):  # of a wrong type: the judge says so
        answer = unordered(answer, call)
    is_observation = isinstance(answer, Observation) and isinstance(answer.tables, dict)
    if is_observation:
        try:
            return marshal.dumps((sorted(answer.tables.items()), *answer[1:]), FORM_VERSION)
        except (TypeError, ValueError):  # a number of a foreign type, for instance
            pass
    try:
        return repr((sorted(answer.tables.items(), key=repr), *answer[1:]) if is_observation else answer)
    except Exception as error:  # such as a list that is nested too deeply: the judge says what is wrong with it
        return f"a {type(answer).__name__} whose repr raises {type(error).__name__}"


@dataclass
class ReplayedStep:
    """One operation of a replay: whether it was enabled, the answer as the judge words it, and the calls it made."""

    operation: Operation
    is_enabled: bool
    answer: str
    calls: list[SubjectCall]


@dataclass
class ReplayResult:
    """One run of given operations on a fresh subject.

    calls_of_open: until it was open. is_out_of_time: the run of kvproof ended before this one.
    """

    calls_of_open: list[SubjectCall] = field(default_factory=list)
    steps: list[ReplayedStep] = field(default_factory=list)
    finding: Finding | None = None
    is_out_of_time: bool = False

    @property
    def num_enabled(self) -> int:
        """How many operations were enabled, and so were done."""
        return sum(step.is_enabled for step in self.steps)

    def calls(self) -> list[SubjectCall]:
        """Every call, in order."""
        return [*self.calls_of_open, *(call for step in self.steps for call in step.calls)]

    def num_operations_up_to(self, num_calls: int) -> int:
        """How many operations have begun when so many calls are made."""
        ends = accumulate((len(step.calls) for step in self.steps), initial=len(self.calls_of_open))
        return next((number for number, end in enumerate(ends) if end >= num_calls), len(self.steps))


def replay(
    make: Callable[[], Any],
    config: Config,
    operations: Sequence[Operation],
    finding: Finding | None = None,
    watch: Callable[[Any], None] = lambda judge: None,
    keeps_answers: bool = True,
) -> ReplayResult:
    """Run the operations until one refutes. Raises Unsupported, and AdapterError.

    A program that answered a call twice has refuted nothing: all its answers after that belong to earlier calls.

    finding: what an earlier run found; if that was a hang, this run waits less long for it. watch: called with the
    judge when the subject is open and after each step, also after the step that refutes. keeps_answers: keep what each
    call answered as data, which takes most of the time.
    """
    level = level_of_config(config)
    subject = make()
    recorder = CallRecorder(subject, level.calls.all, keeps_answers)
    done = ReplayResult()
    judge: LevelJudge | None = None
    try:
        seconds = HANG_SECONDS_MAX if finding is not None and is_hang(finding) else SECONDS_MAX
        with time_limit_of(recorder, seconds) as start_time:
            judge = level.open(recorder, config)
            done.calls_of_open, recorder.calls = recorder.calls, []
            watch(judge)
            enabled = applied(judge, config, operations, start_time)
            for operation in operations:
                step = ReplayedStep(operation, True, "", recorder.calls)
                done.steps.append(step)
                step.is_enabled = next(enabled)
                step.answer, recorder.calls = judge.answer, []
                watch(judge)
    except Finding as refuted:
        done.finding = refuted
        if judge is None:
            done.calls_of_open = recorder.calls
        elif done.steps:
            done.steps[-1].answer = judge.answer
            watch(judge)
    except OutOfTime:
        done.is_out_of_time = True
    if getattr(subject, "is_program", False) and (done.finding or finding):
        subject.require_in_step()
    return done


def is_hang(finding: Finding) -> bool:
    """Whether the subject did not answer in time. Within a call, the judge takes the time limit for the call's own
    exception, and the cause then ends in the name of `Finding`."""
    return finding.cause.endswith(("hang", f" {Finding.__name__}"))


def is_cut_short(done: ReplayResult) -> bool:
    """Whether the time of the whole run was over, and no single call was found to hang."""
    return done.finding is not None and done.finding.cause == "hang"
