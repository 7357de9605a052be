"""What the history keeps of a run: everything that later runs are compared with, and nothing that only fills space.

A finding keeps its identity, which is also that of baselines: the property and the signature (`reports/baseline.py`).
`as_result` turns a recorded run back into a result without times, so that `baseline.difference` compares it.
"""

from dataclasses import dataclass, field, replace
from pathlib import PurePath

from kvproof.reports.device_baseline import SAME
from kvproof.reports.evidence import Reported, refuted
from kvproof.reports.identity import Identity
from kvproof.reports.result import Check, Result, Run, WitnessCount
from kvproof.reports.summary import judges, properties, weakest_verdict, work
from kvproof.spec.text.properties import NOTES
from kvproof.spec.verdict import Exit, Verdict

STEPS = ("operations", "transitions")  # counts of a judge that make the operations of a run
TEXT_MAX = 2_000  # characters kept of what a finding says; the trace has it whole


@dataclass
class RecordedVerdict:
    """The weakest verdict of a judge on a property over its scopes."""

    judge: str
    property: str
    verdict: Verdict


@dataclass
class RecordedWork:
    """How much a judge did: 12,000 `operations`, for example."""

    judge: str
    unit: str
    count: int


@dataclass
class RecordedSpeed:
    """A speed of the data plane: the median ratio to a plain copy, and its noise.

    measured: the device, layout, element type and block size, as text; empty if an older kvproof recorded the run.
    """

    name: str
    mapping: str
    ratio: float
    noise: float
    measured: str = ""


@dataclass
class RecordedRun:
    """One run of the history.

    id: ten hexadecimal digits. revision: the commit of the working folder with `-dirty` if files differ from it; empty
    if it is not known. host: the name of the machine. facts: what else is known about the machine. processor_seconds:
    None if it is not known. findings: each made by `finding_of`. reached: how often the judges reached rules, witnesses
    and kinds of operations.
    """

    id: str
    subject: str
    command: str
    seed: int
    effort: str
    budget_seconds: float | None
    revision: str
    version: str
    host: str
    facts: dict[str, str]
    started: str
    seconds: float
    processor_seconds: float | None
    exit_code: int
    is_complete: bool
    verdicts: list[RecordedVerdict] = field(default_factory=list)
    findings: list[Check] = field(default_factory=list)
    work: list[RecordedWork] = field(default_factory=list)
    reached: list[WitnessCount] = field(default_factory=list)
    speeds: list[RecordedSpeed] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The subject without its release, and without the folders above from which its file was named."""
        subject = self.subject.partition("==")[0]
        path, separator, factory = subject.rpartition(":")
        if not path.endswith(".py"):
            return subject
        return PurePath(*(step for step in PurePath(path).parts if step != "..")).as_posix() + separator + factory

    @property
    def release(self) -> str:
        """The release in the name of the subject; empty if it has none."""
        return self.subject.partition("==")[2]

    @property
    def operations(self) -> int:
        """The operations and transitions of all judges."""
        return sum(one.count for one in self.work if one.unit in STEPS)

    @property
    def operations_per_second(self) -> float | None:
        """Operations per second of processor time; None if either is not known."""
        return self.operations / self.processor_seconds if self.operations and self.processor_seconds else None

    @property
    def identities(self) -> frozenset[Identity]:
        """The findings of the run by their identity, excused or not; notes are no findings."""
        return frozenset(one.identity for one in self.findings if one.property not in NOTES)

    def has(self, known: Identity) -> bool:
        """Whether a known finding is one of those of the run."""
        return any(one.is_covered_by(known) for one in self.identities)

    @property
    def judged(self) -> frozenset[str]:
        """The properties on which some judge has a verdict other than unknown."""
        undecided = (Verdict.UNKNOWN, Verdict.UNSUPPORTED)
        return frozenset(one.property for one in self.verdicts if one.verdict not in undecided)

    @property
    def outcome(self) -> str:
        """The exit code in words: `ok`, `refuted`, `inconclusive`, …"""
        known = {one.value for one in Exit}
        return Exit(self.exit_code).name.lower().replace("_", " ") if self.exit_code in known else "unknown"


def recorded(result: Result, code: int, id: str, host: str, revision: str) -> RecordedRun:
    """What the history keeps of a result. code: the exit code of the run."""
    run = result.run
    one = RecordedRun(
        id, run.subject, run.command, run.seed, run.effort, run.budget_seconds, revision, run.version, host,
        dict(run.host), run.started, run.seconds, run.processor_seconds, int(code), run.is_complete,
    )  # fmt: skip
    for judge in judges(result):
        for name in properties(result):
            if (verdict := weakest_verdict(result, name, judge)) is not None:
                one.verdicts.append(RecordedVerdict(judge, name, verdict))
    kept = dict[tuple[str, str, str], Check]()
    for check in result.checks:
        if check.verdict is Verdict.REFUTED:
            key = check.judge, check.property, check.signature
            finding = finding_of(*key, check.excused, check.text[:TEXT_MAX], check.trace, check.former)
            if key not in kept or (kept[key].excused and not check.excused):
                kept[key] = finding
    one.findings = list(kept.values())
    one.work = [
        RecordedWork(judge, unit, count) for judge, units in work(result).items() for unit, count in units.items()
    ]
    reached = {(witness.judge, witness.name): witness for witness in result.witnesses}
    one.reached = list(reached.values())
    if result.data_plane is not None and (bandwidth := result.data_plane.bandwidth) is not None:
        speeds = {(speed.name, speed.mapping): speed for speed in (*bandwidth.moves, *bandwidth.verification)}
        measured = ", ".join(str(getattr(bandwidth, name)) for name in SAME)
        one.speeds = [RecordedSpeed(*key, speed.ratio.median, speed.noise, measured) for key, speed in speeds.items()]
    return one


def finding_of(
    judge: str,
    property: str,
    signature: str,
    excused: str = "",
    text: str = "",
    trace: str | None = None,
    former: str = "",
) -> Check:
    """A refutation as the history keeps it: without its times, its counts, and what tells it from others of a run."""
    check = Check(f"{judge}/{property}", judge, property, Verdict.UNKNOWN, trace=trace or None, signature=signature)
    check.excused, check.former = excused, former
    return refuted(check, Reported(text or property, judge))


def as_result(one: RecordedRun) -> Result:
    """The recorded run as a result without times, one check for each judge and property, and one for each finding."""
    run = Run(one.version, one.command, one.subject, one.seed, dict(one.facts), one.started, one.seconds)
    run.effort, run.budget_seconds, run.is_complete = one.effort, one.budget_seconds, one.is_complete
    run.processor_seconds = one.processor_seconds
    done: dict[str, dict[str, int]] = {}
    for item in one.work:
        done.setdefault(item.judge, {})[item.unit] = item.count
    checks = [
        Check(f"{each.judge}/{each.property}", each.judge, each.property, each.verdict, counts=done.get(each.judge, {}))
        for each in one.verdicts
        if each.verdict is not Verdict.REFUTED
    ]
    for number, found in enumerate(one.findings, start=1):
        checks.append(replace(found, id=f"{found.id}/{number}"))
    result = Result(run, checks, list(one.reached))
    result.count_totals()
    return result
