"""The result document of a run: verdicts, counts, witnesses. Every report is rendered from it.

The five verdicts are never merged. `unknown` never counts as success. `unsupported` is not a verdict: the subject lacks
the feature that the check is about, so nothing was checked.
"""

import builtins
from dataclasses import dataclass, field
from typing import Any

from kvproof.reports.data_plane_result import DataPlane
from kvproof.reports.identity import Identity
from kvproof.spec.text.properties import NOTES
from kvproof.spec.trace import is_ours
from kvproof.spec.verdict import Exit, Verdict

SCHEMA_VERSION = 1
THE_SPECIFICATION = "the specification"  # the subject of a run without another
OF_THE_SPECIFICATION = frozenset({"prover", "specification"})  # judges that make no call of a subject
EFFORTS = {"quick": 50_000, "normal": 500_000, "long": 5_000_000}  # operations of the random walk
PROMISED_BY_NOBODY = "no capability of the subject promises it"  # the text of a note
SEEN = "it was seen"
REFUSED = "the subject supports no configuration"  # the text of a check begins so if no configuration was accepted
OPERATIONS = " operations"  # the name of a judge, and this: what its witnesses count are the operations that it did
KNOWN = "known until"  # the excuse of a finding that is in the list of known findings begins with this


@dataclass
class Check:
    """One property under one judge.

    id: `judge/property` or `judge/property/scope`, unique in a result. counts: the work done (states, operations).
    text: one sentence; for a refutation, what broke and where. trace: path of the saved counterexample, relative to the
    folder of the result. signature: how the property broke; findings with the same property and signature are
    duplicates. excused: why a refutation is not a failure (it is known, or the call was outside the contract of the
    engine); empty if it is one. counterexample: for a refuted proof, a state of the specification, the rule that fires
    there, and the state after it. claims: of a search of the specification, the claims about the property that were
    evaluated in every state; claims_left_out: those that were not. note: what was seen and breaks no promise of the
    subject. A check with a note is unsupported, and never refuted, because nothing shows a fault. former: the signature
    that an older kvproof gave such a finding, to compare it with a document of that version.
    """

    id: str
    judge: str
    property: str
    verdict: Verdict
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    text: str = ""
    trace: str | None = None
    signature: str = ""
    excused: str = ""
    counterexample: dict[str, Any] | None = None
    claims: list[str] = field(default_factory=list)
    claims_left_out: list[str] = field(default_factory=list)
    note: str = ""
    former: str = ""

    def __post_init__(self) -> None:
        """Documents that kvproof wrote before there were notes call such a check refuted.

        Raises ValueError if the check is refuted by nothing; kvproof refutes one by `evidence.refuted` alone.
        """
        if self.verdict is Verdict.REFUTED and self.property in NOTES:
            self.verdict, self.text, self.note = Verdict.UNSUPPORTED, PROMISED_BY_NOBODY, self.text or SEEN
        if self.verdict is Verdict.REFUTED and not (self.text or self.trace or self.counterexample):
            raise ValueError(f"{self.property} is not refuted by {self.judge} without what shows it")

    @builtins.property
    def identity(self) -> Identity:
        """What makes a refutation the same as that of another result."""
        return Identity(self.property, self.signature, self.former)

    @builtins.property
    def is_failure(self) -> bool:
        """Whether this check fails the gate: a refutation without an excuse."""
        return self.verdict is Verdict.REFUTED and not self.excused

    @builtins.property
    def is_of_the_specification(self) -> bool:
        """Whether its judge looks at the specification, and not at the subject of `kvproof verify`."""
        return self.judge.partition(" (")[0] in OF_THE_SPECIFICATION

    @builtins.property
    def is_decided(self) -> bool:
        """Whether anything was checked; what is unknown was begun, or should have been."""
        return self.verdict is not Verdict.UNSUPPORTED

    @builtins.property
    def was_refused(self) -> bool:
        """Whether the subject refused every configuration that its judge drew, so that no run began."""
        return self.verdict is Verdict.UNKNOWN and self.text.startswith(REFUSED)

    @builtins.property
    def said(self) -> str:
        """What was found: the text of a refutation, or the note."""
        return self.note or self.text


@dataclass
class WitnessCount:
    """How often a judge reached a situation. Claims about a situation that was never reached would be empty."""

    name: str
    judge: str
    count: int
    is_expected: bool = True


@dataclass
class Refusals:
    """The configurations that a judge asked for and the subject does not have, though its capabilities promise them.

    count: how many of them, of so many that were asked for (`asked`). reasons: how often each was given. What a subject
    refuses is not checked, so a report never passes over it.
    """

    judge: str
    count: int
    asked: int
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass
class PartlyRun:
    """A function of the subject that did not run as a whole: it begins at `line`, and `lines` did not run."""

    function: str
    line: int
    lines: list[int] = field(default_factory=list)
    is_entered: bool = False


@dataclass
class CodeFile:
    """How much of a file of the subject ran: of its functions and of their lines. partly: what did not."""

    file: str
    num_functions: int
    num_entered: int = 0
    num_lines: int = 0
    num_run: int = 0
    partly: list[PartlyRun] = field(default_factory=list)


@dataclass
class SubjectCode:
    """Which code of the subject ran in so many operations of walks: of each file that was entered.

    why_unknown: why it is not known; empty if it is.
    """

    num_operations: int
    why_unknown: str = ""
    files: list[CodeFile] = field(default_factory=list)


@dataclass
class Difference:
    """What is different from the baseline, as sentences.

    baseline: the file of the baseline. has_findings: whether it is a whole result; then every failure is a new finding,
    because the findings that the baseline has are excused.
    """

    baseline: str
    worse: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    has_findings: bool = False


@dataclass
class Run:
    """The command, its subject, its seed, and the machine it ran on.

    effort: how much the searches do, as `--effort` names it; empty if only the budget limits them. budget_seconds: the
    time limit, if there is one. processor_seconds: processor time of kvproof and of all processes that it started; None
    if it is not known. options: words of the command line that also decide what the run does, such as `--fix window=4`.
    required: the judges that must have checked something.
    """

    version: str
    command: str
    subject: str
    seed: int
    host: dict[str, str] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0
    assumptions: list[str] = field(default_factory=list)
    effort: str = ""
    budget_seconds: float | None = None
    is_complete: bool = False  # False: interrupted, or still running
    processor_seconds: float | None = None
    options: list[str] = field(default_factory=list)
    required: list[str] = field(default_factory=list)

    @property
    def has_seed(self) -> bool:
        """Whether anything is drawn: recordings are read, and a scope is searched in the order of its operations."""
        return self.command not in ("validate", "explore")


def operations_of(effort: str) -> int:
    """The operations of the random walk at an effort, as a Run names it; 0 if it names none."""
    return EFFORTS.get(effort) or int(effort if effort.isdecimal() else 0)


@dataclass
class Result:
    """The result document of one run.

    data_plane: the results about bytes; None if no bytes were moved. difference: from the baseline, if there is one.
    refusals: of each judge whose configurations the subject refused. code: of the subject, which ran; None if no walk
    called it.
    """

    run: Run
    checks: list[Check] = field(default_factory=list)
    witnesses: list[WitnessCount] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    data_plane: DataPlane | None = None
    difference: Difference | None = None
    refusals: list[Refusals] = field(default_factory=list)
    code: SubjectCode | None = None
    schema_version: int = SCHEMA_VERSION

    def count_totals(self) -> None:
        """Fill `totals`: the number of checks by verdict, and of expected witnesses that were never reached."""
        self.totals = {verdict.value: 0 for verdict in Verdict}
        for check in self.checks:
            self.totals[check.verdict.value] += 1
        self.totals["unmet witnesses"] = len(self.unmet_witnesses())

    def unmet_witnesses(self) -> list[WitnessCount]:
        """Witnesses that were expected and never reached."""
        return [w for w in self.witnesses if w.is_expected and not w.count]

    def exit_code(self) -> Exit:
        """The exit code for a gate.

        Order of precedence: refuted, nothing checked, inconclusive, worse than the baseline. If the baseline has
        findings, worse comes first, because a new finding is worse. Nothing is checked if no judge looked at the
        subject, for example because it refused every configuration, or one that is required checked nothing.
        """
        decided = [check for check in self.checks if check.is_decided]
        if decided and self.difference is not None and self.difference.has_findings and self.difference.worse:
            return Exit.WORSE_THAN_BASELINE
        if any(check.is_failure for check in decided):
            return Exit.REFUTED
        has_run = any(not check.was_refused for check in decided)
        if not has_run or self.is_about_another or self.missing_judges():
            return Exit.NOTHING_CHECKED
        unknown = any(check.verdict is Verdict.UNKNOWN for check in decided)
        if unknown or self.unmet_witnesses() or not self.run.is_complete:
            return Exit.INCONCLUSIVE
        return Exit.WORSE_THAN_BASELINE if self.is_worse else Exit.OK

    def subject_of(self, check: Check) -> str:
        """What a check is about: the subject of the run, or the specification."""
        return THE_SPECIFICATION if check.is_of_the_specification else self.run.subject

    @builtins.property
    def has_looked(self) -> bool:
        """Whether a judge looked at the subject itself."""
        mine = [check for check in self.checks if self.subject_of(check) == self.run.subject]
        return any(check.is_decided and not check.was_refused for check in mine)

    @builtins.property
    def is_about_another(self) -> bool:
        """Whether only the specification was checked, which is no part of the subject."""
        return not self.has_looked and not is_ours(self.run.subject)

    def missing_judges(self) -> list[str]:
        """The judges that the run requires and that checked nothing."""
        looked = [check for check in self.checks if check.is_decided and not check.was_refused]
        done = {check.judge.partition(" (")[0] for check in looked}
        return [name for name in self.run.required if name not in done]

    @builtins.property
    def is_worse(self) -> bool:
        """Whether anything is worse than in the baseline."""
        has_lost = self.difference is not None and bool(self.difference.worse)
        return has_lost or (self.data_plane is not None and self.data_plane.is_worse)
