"""The checks of one judge on one search: undecided before, all decided by its one outcome."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from kvproof.check.oracle import coverage
from kvproof.check.oracle import coverage_pool as pool_coverage
from kvproof.check.oracle import coverage_scheduler as loop_coverage
from kvproof.check.protocol.adapter_check_pool import is_pool_subject
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.protocol.pool import PoolSubject
from kvproof.check.protocol.scheduler import SchedulerSubject
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.session import NOT_RUN
from kvproof.check.search.suppression import Features
from kvproof.reports.result import Check, WitnessCount
from kvproof.spec.text.properties import SENTENCES
from kvproof.spec.verdict import Verdict

WALKER, REPEATED = "walker", "nondeterministic"
STOPPED = "stopped at the first finding"
BESIDES = "besides what is excused"


@dataclass
class ReportedFinding:
    """One property broken: what and where, and the saved trace."""

    property: str
    text: str
    trace: str | None = None
    scope: str = ""  # tells findings of one property apart
    signature: str = ""  # how it broke
    excused: str = ""  # why it is no failure
    features: Features = ()  # what its shortest run makes use of and could do without


@dataclass
class Outcome:
    """What a search gives: the verdict for whatever it did not refute, and what it did."""

    verdict: Verdict
    counts: dict[str, int]
    seconds: float
    text: str = ""
    refutations: list[ReportedFinding] = field(default_factory=list)


def about_subject(judge: str, subject: ManagerSubject) -> list[Check]:
    """A check for every property, unsupported where the judge cannot speak of it."""
    reasons = {name: coverage.unsupported(name, subject.capabilities) for name in SENTENCES} | coverage.hidden(subject)
    if judge == WALKER:
        del reasons[REPEATED]  # its first runs are done again
    return [_undecided(judge, name, "", reasons.get(name)) for name in SENTENCES]


def about_loop(judge: str, subject: SchedulerSubject) -> list[Check]:
    """A check for every property, unsupported where nothing is seen of it when a whole scheduler is driven."""
    reasons = {name: loop_coverage.unsupported(name, subject.capabilities) for name in SENTENCES}
    return [_undecided(judge, name, "", reasons[name] or loop_coverage.hidden(name, subject)) for name in SENTENCES]


def about_pool(judge: str, subject: PoolSubject) -> list[Check]:
    """A check for every property, unsupported where nothing is seen of it with block ids only."""
    return [_undecided(judge, name, "", pool_coverage.unsupported(name, subject)) for name in SENTENCES]


def about_scopes(judge: str, scopes: Mapping[str, Scope], subject: ManagerSubject | None) -> list[Check]:
    """A check for every property in every scope where it has a meaning; what the subject cannot do stands once.

    Without a subject: the properties that the text of the specification itself has.
    """
    if subject is None:
        whole = [_undecided(judge, name, "", None) for name in coverage.properties_of_the_specification()]
    elif is_pool_subject(subject):
        whole = about_pool(judge, cast(PoolSubject, subject))
    else:
        whole = about_subject(judge, subject)
    unsupported = [check for check in whole if check.verdict is Verdict.UNSUPPORTED]
    open_names = {check.property for check in whole} - {check.property for check in unsupported}
    checks = [
        _undecided(judge, property, name, None)
        for name, scope in scopes.items()
        for property in SENTENCES
        if property in open_names and coverage.has_meaning(property, scope)
    ]
    return checks + unsupported


def _undecided(judge: str, property: str, scope: str, reason: str | None) -> Check:
    verdict = Verdict.UNKNOWN if reason is None else Verdict.UNSUPPORTED
    return Check(_id(judge, property, scope), judge, property, verdict, text=NOT_RUN if reason is None else reason)


def _id(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def refuted_by(judge: str, found: ReportedFinding, outcome: Outcome, scope: str = "") -> Check:
    """What one finding says of its property."""
    return Check(
        _id(judge, found.property, scope, found.scope),
        judge,
        found.property,
        Verdict.REFUTED,
        outcome.seconds,
        {} if found.scope else outcome.counts,  # one search is counted once
        found.text,
        found.trace,
        found.signature,
        found.excused,
    )


def decided(judge: str, planned_checks: list[Check], outcome: Outcome, scope: str = "") -> Iterator[Check]:
    """The checks as the search leaves them. What was refuted is refuted even where we thought it could not be."""
    refuted = {refutation.property for refutation in outcome.refutations if not refutation.excused}
    for found in outcome.refutations:
        yield refuted_by(judge, found, outcome, scope)
    excused = {refutation.property for refutation in outcome.refutations} - refuted
    for check in planned_checks:
        if check.property not in refuted and check.verdict is Verdict.UNKNOWN:
            text = BESIDES if check.property in excused else outcome.text
            yield replace(check, verdict=outcome.verdict, seconds=outcome.seconds, counts=outcome.counts, text=text)


def named_if_excused(found: ReportedFinding) -> ReportedFinding:
    """What is excused has a name of its own, beside the verdict of everything else of its property."""
    if found.excused:
        found.scope = "-".join(
            part for part in (found.scope, found.signature.partition(":")[0].replace(" ", "-")) if part
        )
    return found


def noted(notes: Mapping[str, int], num_done: int, kind: str) -> list[ReportedFinding]:
    """What is no failure, but worth a note."""
    return [ReportedFinding(name, f"{count:,} times in {num_done:,} {kind}") for name, count in notes.items() if count]


def met(judge: str, seen: Counter[str], expected: Mapping[str, bool]) -> Iterator[WitnessCount]:
    """How often each witness was met; `expected` says which must be."""
    for name in [*expected, *(name for name in sorted(seen) if name not in expected)]:
        yield WitnessCount(name, judge, seen[name], expected.get(name, False))
