"""What shows that a property does not hold. No check is refuted in any other way than by one of these (`refuted`).

Each kind of judge shows something else, and each class says what: without it, no evidence can be made, and a `Check`
that is refuted by nothing is an error. A search shows a run, a proof a state or a call that breaks the obligation, the
data plane a case whose bytes differ, a recording the line that diverges, a lint the place in the text.
"""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict


@dataclass(frozen=True)
class Evidence:
    """text: what broke, and where. Raises ValueError if a field without a default is empty."""

    text: str

    def __post_init__(self) -> None:
        empty = [one.name for one in fields(self) if one.default is MISSING and not getattr(self, one.name)]
        if empty or type(self) is Evidence:
            raise ValueError(f"nothing is refuted by {type(self).__name__} without {', '.join(empty) or 'a kind'}")

    @property
    def said(self) -> str:
        """The text of the check."""
        return self.text


@dataclass(frozen=True)
class SavedRun(Evidence):
    """A run of the subject. trace: the path of its file, relative to the folder of the result."""

    trace: str


@dataclass(frozen=True)
class PrintedRun(Evidence):
    """A run that no file has. steps: the run as text."""

    steps: str

    @property
    def said(self) -> str:
        """The text of the check."""
        return f"{self.text}\n{self.steps}"


@dataclass(frozen=True)
class BrokenObligation(Evidence):
    """A run that breaks an obligation; the text has it. obligation: its id. state: that of `Check.counterexample`, if
    the run is one of the specification."""

    obligation: str
    state: dict[str, Any] | None = None


@dataclass(frozen=True)
class FailedCase(Evidence):
    """A case whose bytes or tokens are not what they must be. case: executor, layout, type, mapping and seed, or the
    workload."""

    case: str

    @property
    def said(self) -> str:
        """The text of the check."""
        return f"{self.case}: {self.text}"


@dataclass(frozen=True)
class DivergingLine(Evidence):
    """A line of a recording that no rule explains."""

    line: int


@dataclass(frozen=True)
class BadPlaces(Evidence):
    """Places of a text that break a lint. places: file and line of each."""

    places: Sequence[str]


@dataclass(frozen=True)
class Disagreement(Evidence):
    """What contradicts what: two solvers, the obligations and the pin, hypotheses, a contract and its run. names: of
    the obligations, hypotheses or contracts."""

    names: Sequence[str]


@dataclass(frozen=True)
class MissedFault(Evidence):
    """A planted fault that no judge has noticed. fault: its id."""

    fault: str


@dataclass(frozen=True)
class Reported(Evidence):
    """A finding that an earlier run has shown, and its document or trace names. judge: which."""

    judge: str


def refuted(check: Check, shown: Evidence) -> Check:
    """The check, refuted by the evidence: the only way in which kvproof refutes one."""
    trace = shown.trace if isinstance(shown, SavedRun) else check.trace
    state = shown.state if isinstance(shown, BrokenObligation) else check.counterexample
    return replace(check, verdict=Verdict.REFUTED, text=shown.said, trace=trace, counterexample=state)
