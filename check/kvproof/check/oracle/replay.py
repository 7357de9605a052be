"""The same calls again: whether a run repeats, and what each of its calls answered.

A finding is believed when two runs of its operations, each on a fresh subject, give it again with the same answers
all through. Answers are compared as they come from the subject, in order, so that a manager whose choices depend on
time, on memory addresses or on an earlier run is told apart from one that is wrong.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.adapter_check import CALLS
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Observation
from kvproof.check.protocol.time_limit import time_limit
from kvproof.spec.trace import Operation

# What is of the loop level is imported where it is used: the walkers of both levels use this module.

SECONDS_MAX, HANG_SECONDS_MAX = 20.0, 5.0
USUAL_CAUSES = "usual causes: state kept from an earlier open, random choices, the clock, or the order of a set"


@dataclass(frozen=True)
class Call:
    """One call of a subject, and what it answered; `answer` is data, and `shown` how two runs are compared."""

    name: str
    arguments: tuple[Any, ...]
    answer: Any
    shown: str

    def __str__(self) -> str:
        if self.name == "observe":
            return "observe()"
        return f"{self.name}({', '.join(str(argument) for argument in self.arguments)})"


@cache
def _recorded_names() -> frozenset[str]:
    from kvproof.check.protocol.adapter_check_pool import CALLS as POOL_CALLS
    from kvproof.check.protocol.adapter_check_scheduler import CALLS as LOOP_CALLS

    return frozenset(CALLS + LOOP_CALLS + POOL_CALLS)


class Recorder:
    """A subject that writes down each call and its answer, and passes both on."""

    def __init__(self, subject: ManagerSubject) -> None:
        self._subject = subject
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        return self._recorded(name, found) if name in _recorded_names() and callable(found) else found

    def _recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any) -> Any:
            try:
                answer = call(*arguments)
            except (Exception, SystemExit) as error:
                self.calls.append(Call(name, arguments, None, f"{type(error).__name__} raised"))
                raise
            self.calls.append(Call(name, arguments, _kept(answer), _shown(answer)))
            return answer

        return recorded


def _kept(answer: Any) -> Any:
    """The answer as it is now: a subject may go on to change the tables it has shown."""
    return deepcopy(answer) if isinstance(answer, Observation) else answer


def _shown(answer: Any) -> str:
    if isinstance(answer, Observation) and isinstance(answer.tables, dict):
        return repr((sorted(answer.tables.items(), key=repr), *answer[1:]))
    return repr(answer)


@dataclass
class Step:
    """One operation of a run: whether it was enabled, what the judge says of its answer, and the calls it made."""

    operation: Operation
    is_enabled: bool
    answer: str
    calls: list[Call]


@dataclass
class ReplayResult:
    """One run of given operations on a fresh subject."""

    opening: list[Call] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    finding: Finding | None = None

    @property
    def num_enabled(self) -> int:
        """Operations that were done."""
        return sum(step.is_enabled for step in self.steps)

    def calls(self) -> list[Call]:
        """Every call, in order."""
        return [*self.opening, *(call for step in self.steps for call in step.calls)]


def repeat(
    make: Callable[[], ManagerSubject],
    config: Config,
    operations: Sequence[Operation],
    finding: Finding | None = None,
    watch: Callable[[Any], None] = lambda judge: None,
) -> ReplayResult:
    """Run the operations until one refutes. Raises Unsupported, and AdapterError.

    finding: what an earlier run found; a hang is not waited for as long again. watch: is shown the judge when the
    subject is open, and after each step, the one that refutes included.
    """
    from kvproof.check.oracle.pool import PoolJudge
    from kvproof.check.oracle.scheduler.judge import SchedulerJudge
    from kvproof.check.protocol.pool import PoolConfig
    from kvproof.check.protocol.scheduler import SchedulerConfig

    recorder = Recorder(make())
    done = ReplayResult()
    judge: ManagerJudge | SchedulerJudge | PoolJudge | None = None
    try:
        with time_limit(HANG_SECONDS_MAX if finding is not None and is_hang(finding) else SECONDS_MAX):
            if isinstance(config, SchedulerConfig):
                judge = SchedulerJudge(cast(Any, recorder), config)
            elif isinstance(config, PoolConfig):
                judge = PoolJudge(cast(Any, recorder), config)
            else:
                judge = ManagerJudge(recorder, config)
            done.opening, recorder.calls = recorder.calls, []
            watch(judge)
            for operation in operations:
                step = Step(operation, True, "", recorder.calls)
                done.steps.append(step)
                step.is_enabled = judge.apply(operation)
                step.answer, recorder.calls = judge.answer, []
                watch(judge)
    except Finding as finding:
        done.finding = finding
        if judge is None:
            done.opening = recorder.calls
        elif done.steps:
            done.steps[-1].answer = judge.answer
            watch(judge)
    return done


def is_hang(finding: Finding) -> bool:
    """Whether the subject did not answer in time; inside a call the judge takes the limit for what the call raised."""
    return finding.cause.endswith(("hang", f" {Finding.__name__}"))


def difference(one: ReplayResult, other: ReplayResult) -> str | None:
    """Where two runs of the same operations part; None if they do not."""
    for number, (first, second) in enumerate(zip(one.calls(), other.calls(), strict=False), start=1):
        if str(first) != str(second):
            break
        if first.shown != second.shown:
            return f"call {number}, {first}, answered {_cut(first.shown)}, then {_cut(second.shown)}"
    if _of(one.finding) != _of(other.finding):
        return f"first {_said(one.finding)}, then {_said(other.finding)}"
    return None


def _of(finding: Finding | None) -> tuple[str, str] | None:
    return None if finding is None else finding.kind


def _said(finding: Finding | None) -> str:
    return "nothing was refuted" if finding is None else f"{finding.property}: {finding.text}"


def _cut(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."


def confirm(
    make: Callable[[], ManagerSubject], config: Config, operations: Sequence[Operation], finding: Finding
) -> Finding:
    """The finding, if two runs on fresh subjects give it again; else a finding that the subject does not repeat."""
    if finding.property == "nondeterministic":
        return finding
    first, second = repeat(make, config, operations, finding), repeat(make, config, operations, finding)
    parted = difference(first, second)
    if parted is None and _of(first.finding) != finding.kind:
        parted = f"first {_said(finding)}, then, on a fresh subject, {_said(first.finding)}"
    if parted is None:
        return finding
    return nondeterministic(parted)


def nondeterministic(parted: str) -> Finding:
    """The finding that the same calls gave other answers."""
    return Finding("nondeterministic", f"the same calls, other answers: {parted}\n{USUAL_CAUSES}")
