"""Replay a counterexample on a subject: it still fails, it is fixed, or it cannot be replayed.

The replay is done twice, so that a subject that does not repeat itself is not taken for one that is fixed. Nor is one
that no longer shows what the property is about, or that cannot do the operation which refuted.

A trace is data, so any release of an engine can run it, each in a process of its own (`bisect`). Releases are named one
by one, or as a range A..B, which stands for the installed releases from A to B.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import partial
from itertools import groupby
from pathlib import Path

from kvproof.check.counterexample.keeping import Located
from kvproof.check.counterexample.steps import narrated, steps_of
from kvproof.check.counterexample.store import Factory, load, refutation
from kvproof.check.counterexample.trace_schema import config_of, operations_of
from kvproof.check.oracle.coverage import PROPERTIES
from kvproof.check.oracle.level import MANAGER, POOL, SCHEDULER, STORE, level_of_config
from kvproof.check.oracle.repetition import nondeterministic, replay_twice
from kvproof.check.oracle.replay import Call, Counterexample, ReplayResult
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Config, Refused
from kvproof.check.protocol.scheduler import ScheduledStep
from kvproof.check.protocol.store import NO_SLOT, Staged
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.registry import engine_of
from kvproof.spec.trace import Operation, Trace

REFUSALS = Admission.LATER, Admission.NEVER, False
GIVEN_UP = {  # what makes an operation of a trace impossible on a subject that is right
    MANAGER.name: "refused",
    POOL.name: "refused",
    SCHEDULER.name: "refused or ended",
    STORE.name: "refused or evicted",
}


class ReplayStatus(Enum):
    """The outcome of a replay."""

    FIXED = "FIXED"  # nothing is refuted any more
    FAILED = "FAILED"  # something still is
    ERROR = "ERROR"  # it could not be replayed

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Replay:
    """The outcome of a replay. `text` is one line, for a failure followed by the whole refutation."""

    status: ReplayStatus
    text: str
    finding: Finding | None = None
    is_misnamed: bool = False  # an error because the file is no counterexample, or no subject has the name


def replay_trace(
    path: Path, trace: Trace, make: Factory, name: str, locate: Callable[[Counterexample], Located]
) -> Replay:
    """Replay the trace of a file on a subject of this name.

    locate: gives the method of the subject in which a run breaks, and the frames of its exception.
    Raises CounterexampleError, Unsupported, AdapterError.
    """
    config, operations = config_of(trace, path), operations_of(trace, path)
    done, parted = replay_twice(make, config, operations)
    finding = done.finding if parted is None else nondeterministic(parted)
    if finding is None and operations and not done.num_enabled:
        text = f"none of the {len(operations)} operations is possible: nothing was replayed"
        return Replay(ReplayStatus.ERROR, text)
    if finding is None and (reason := _why_open(trace, config, make, done)):
        return Replay(ReplayStatus.ERROR, f"{trace.property} is not decided: {reason}")
    if finding is None:
        num_skipped = len(operations) - done.num_enabled
        count = f"{done.num_enabled} operations" if operations else "the subject was opened"
        count += f" ({num_skipped} were not possible)" if num_skipped else ""
        return Replay(ReplayStatus.FIXED, f"{trace.property} holds: {count}, and nothing is refuted")
    if finding.property == trace.property:
        verdict = f"{trace.property} is still refuted"
    else:
        verdict = f"{trace.property} was refuted when the trace was saved; now it is {finding.property}"
    again = _refuted_again(trace, name, config, operations[: len(done.steps)], done, finding, locate)
    return Replay(ReplayStatus.FAILED, f"{verdict}\n{refutation(again, path)}", finding)


def _why_open(trace: Trace, config: Config, make: Factory, done: ReplayResult) -> str:
    """Why a replay that refutes nothing does not show that the property holds; empty if it shows that.

    The last operation is the one that refuted. A subject may have no use for it if it gave up earlier what that
    operation is about: a manager or a pool refused something, a scheduler ended a request, a store evicted a key. If it
    gave up nothing, or cannot do the operation at all, the fault had no chance to show.
    """
    level, subject = level_of_config(config), make()
    is_of_one_run = trace.property in PROPERTIES and trace.property != "nondeterministic"
    if is_of_one_run and (reason := level.unsupported(trace.property, level.facts_of(subject))) is not None:
        return reason
    if not done.steps or (last := done.steps[-1]).is_enabled:  # without steps it was refuted when it was opened
        return ""
    where = f"operation {len(done.steps)}, in which it was refuted,"
    if not level.kinds[last.operation[0]].is_possible(config, subject.capabilities):
        return f"{where} is {last.operation[0]}, which the subject does not declare"
    given_up = GIVEN_UP[level.name]
    return "" if _gave_up(done.calls()) else f"{where} is not possible here, and nothing was {given_up} before"


def _gave_up(calls: Iterable[Call]) -> bool:
    """Whether the subject refused something, ended a request by itself, or evicted or did not take a key."""
    slots = set[int]()  # that a store has given to keys; it gives one again if it evicted the key there
    for call in calls:
        answer = call.answer
        if isinstance(answer, Refused) or any(answer is refusal for refusal in REFUSALS):
            return True
        if isinstance(answer, ScheduledStep) and (answer.ignored or answer.failed):
            return True
        if call.name == "complete" and answer:  # forks that the scheduler refused
            return True
        if call.name == "begin_load" and NO_SLOT in answer:
            return True
        if isinstance(answer, Staged):
            num_asked = len(call.arguments[-1])
            if answer.evicted or len(answer.keys) < num_asked or not slots.isdisjoint(answer.slots):
                return True
            slots.update(answer.slots)
    return False


def _refuted_again(
    trace: Trace,
    name: str,
    config: Config,
    operations: list[Operation],
    done: ReplayResult,
    finding: Finding,
    locate: Callable[[Counterexample], Located],
) -> Trace:
    """The trace as it goes on this subject. operations: up to the one that refutes."""
    method, frames = locate(Counterexample(config, operations, finding))
    return replace(
        trace,
        subject=name,
        property=finding.property,
        text=narrated(finding, config, operations),
        operations=trace.operations[: len(operations)],
        steps=steps_of(done, config, operations),
        method=method,
        frames=frames,
    )


RANGE = ".."


class ReleaseOutcome(StrEnum):
    """The outcome of the replay on one release."""

    HOLDS = "holds"  # the same property is refuted
    OTHER = "other"  # another one is
    GONE = "gone"  # nothing is refuted
    UNKNOWN = "unknown"  # it could not be run


@dataclass(frozen=True)
class Answer:
    """The answer of one release. text: one line. property: the property that is refuted, if any."""

    release: str
    outcome: ReleaseOutcome
    text: str
    property: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Bisection:
    """The answers of several releases, oldest first."""

    subject: str
    trace: str
    property: str
    releases: list[Answer]
    schema_version: int = 1

    def spans(self) -> Iterator[tuple[ReleaseOutcome, list[Answer]]]:
        """Neighbouring releases with the same outcome."""
        for outcome, answers in groupby(self.releases, key=lambda answer: answer.outcome):
            yield outcome, list(answers)

    def sentence(self) -> str:
        """One sentence: the outcome in each range of releases."""
        parts = []
        for outcome, answers in self.spans():
            first, last = answers[0].release, answers[-1].release
            parts.append(f"{outcome.value} in {first if first == last else f'{first} to {last}'}")
        return f"{self.property}: {', '.join(parts)}"


def releases_of(engine: str, named: Sequence[str], cache: Path | None = None) -> list[str]:
    """The releases that are named, with ranges expanded, oldest first. Raises EngineError."""
    found: dict[str, None] = {}
    for name in named:
        if RANGE in name:
            found.update(dict.fromkeys(_range(engine, name, cache)))
        else:
            found[download.parse(f"{engine}=={name}")[1]] = None
    return sorted(found, key=download.order_of)


def _range(engine: str, name: str, cache: Path | None) -> list[str]:
    first, last = (download.parse(f"{engine}=={end}")[1] for end in name.split(RANGE, 1))
    lowest, highest = download.order_of(first), download.order_of(last)
    here = [one.version for one in download.installed_engines(cache) if one.name == engine]
    inside = [version for version in here if lowest <= download.order_of(version) <= highest]
    if not inside:
        raise EngineError(f"no release of {engine} from {first} to {last} is downloaded; name a release to download it")
    return inside


def bisect(
    subject: str,
    path: Path,
    releases: Sequence[str],
    replay: Callable[[Path, str], Replay],
    report: Callable[[Answer], None] = lambda answer: None,
    each: Callable[[Callable[[str], Answer], Sequence[str]], Iterable[Answer]] = map,
) -> Bisection:
    """Replay a counterexample file on each release.

    replay: runs the file on the subject of that name. report: called with each answer as soon as it is there. each:
    asks about each release, in their order; it may ask workers. Raises CounterexampleError. A release that cannot be
    run has the answer `unknown`.
    """
    trace = load(path)
    engine, name = engine_of(subject), subject.partition("==")[0]
    answers = []
    for answer in each(partial(_answer, engine, name, path, trace.property, replay), releases):
        answers.append(answer)
        report(answer)
    return Bisection(name, str(path), trace.property, answers)


def _answer(
    engine: str, name: str, path: Path, property: str, replay: Callable[[Path, str], Replay], release: str
) -> Answer:
    began = time.monotonic()
    outcome, text, found = _outcome(engine, f"{name}=={release}", release, path, property, replay)
    return Answer(release, outcome, text, found, round(time.monotonic() - began, 2))


def _outcome(
    engine: str, subject: str, release: str, path: Path, property: str, replay: Callable[[Path, str], Replay]
) -> tuple[ReleaseOutcome, str, str | None]:
    try:
        download.add(f"{engine}=={release}")
    except EngineError as error:
        return ReleaseOutcome.UNKNOWN, str(error), None
    done = replay(path, subject)
    first = done.text.partition("\n")[0]
    if done.status is ReplayStatus.ERROR:
        return ReleaseOutcome.UNKNOWN, first, None
    if done.finding is None:
        return ReleaseOutcome.GONE, first, None
    outcome = ReleaseOutcome.HOLDS if done.finding.property == property else ReleaseOutcome.OTHER
    return outcome, f"{done.finding.property}: {done.finding.text}".partition("\n")[0], done.finding.property
