"""Replay a counterexample on a subject: it still fails, it is fixed, or it cannot be replayed.

The replay is done twice, so that a subject that does not repeat itself is not taken for one that is fixed. Nor is one
that no longer shows what the property is about, or that cannot do every operation of the run.

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

from kvproof.check.counterexample.changed_lines import fields_of
from kvproof.check.counterexample.steps import narrated, steps_of
from kvproof.check.counterexample.store import Factory, load, refutation
from kvproof.check.counterexample.trace_schema import config_of, operations_of
from kvproof.check.oracle.coverage import PROPERTIES
from kvproof.check.oracle.level import Level, level_of, level_of_config
from kvproof.check.oracle.method_called import Blame
from kvproof.check.oracle.repetition import nondeterministic, replay_twice
from kvproof.check.oracle.replay import Counterexample, ReplayResult
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.loading.checkouts import names_checkout
from kvproof.check.subjects.registry import engine_of
from kvproof.spec.trace import Operation, Trace


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
    path: Path, trace: Trace, make: Factory, name: str, locate: Callable[[Counterexample], Blame]
) -> Replay:
    """Replay the trace of a file on a subject of this name.

    locate: gives where in the code of the subject a run breaks.
    Raises CounterexampleError, Unsupported, AdapterError.
    """
    config, operations = config_of(trace, path), operations_of(trace, path)
    level = level_of_config(config)
    if (other := _other_level(make(), level)) is not None:
        text = f"it is a run of a {level.name}, and {name} is a {other.name}: nothing was replayed"
        return Replay(ReplayStatus.ERROR, text)
    done, parted = replay_twice(make, config, operations)
    finding = done.finding if parted is None else nondeterministic(parted)
    if finding is None and operations and not done.num_enabled:
        text = f"none of the {len(operations)} operations is possible: nothing was replayed"
        return Replay(ReplayStatus.ERROR, text)
    if finding is None and (reason := _why_open(trace, config, make, done)):
        return Replay(ReplayStatus.ERROR, f"{trace.property} is not decided: {reason}")
    if finding is None:
        count = f"{done.num_enabled} operations" if operations else "the subject was opened"
        return Replay(ReplayStatus.FIXED, f"{trace.property} holds: {count}, and nothing is refuted")
    if finding.property == trace.property:
        verdict = f"{trace.property} is still refuted"
    else:
        verdict = f"{trace.property} was refuted when the trace was saved; now it is {finding.property}"
    again = _refuted_again(trace, name, config, operations[: len(done.steps)], done, finding, locate)
    return Replay(ReplayStatus.FAILED, f"{verdict}\n{refutation(again, path)}", finding)


def _other_level(subject: object, level: Level) -> Level | None:
    """The level of a subject that is a whole one of another level."""
    other = level_of(subject)
    if other is level:
        return None
    try:
        other.check(subject)
    except AdapterError:
        return None  # its calls are incomplete: the replay says which
    return other


def _why_open(trace: Trace, config: Config, make: Factory, done: ReplayResult) -> str:
    """Why a replay that refutes nothing does not show that the property holds; empty if it shows that.

    If an operation is not possible, the subject went another way than the run that refuted. It may do so rightly, for
    example because it refused a request that the other subject took; but then the fault had no chance to show.
    """
    level, subject = level_of_config(config), make()
    is_of_one_run = trace.property in PROPERTIES and trace.property != "nondeterministic"
    if is_of_one_run and (reason := level.unsupported(trace.property, level.facts_of(subject))) is not None:
        return reason
    skipped = [number for number, step in enumerate(done.steps, start=1) if not step.is_enabled]
    if not skipped:
        return ""
    name = done.steps[skipped[0] - 1].operation[0]
    is_declared = level.kinds[name].is_possible(config, capabilities_of(subject))
    why = "not possible here" if is_declared else "not declared by the subject"
    more = f", and {len(skipped) - 1} more of {len(done.steps)}" if len(skipped) > 1 else ""
    return f"operation {skipped[0]} ({name}) is {why}{more}"


def _refuted_again(
    trace: Trace,
    name: str,
    config: Config,
    operations: list[Operation],
    done: ReplayResult,
    finding: Finding,
    locate: Callable[[Counterexample], Blame],
) -> Trace:
    """The trace as it goes on this subject. operations: up to the one that refutes."""
    blame = locate(Counterexample(config, operations, finding))
    return replace(
        trace,
        subject=name,
        property=finding.property,
        text=narrated(finding, config, operations),
        operations=trace.operations[: len(operations)],
        steps=steps_of(done, config, operations),
        **fields_of(blame),
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
    here = [
        one.version
        for one in download.installed_engines(cache)
        if one.name == engine and not names_checkout(one.version)
    ]
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
