"""The checks of a judge: planned before its search, and decided by the outcome of the search.

A check is one property, as one judge sees it. Before the search each check is undecided, or unsupported with a reason.
The findings of the search refute their properties; every other planned check gets the verdict of the outcome.

No property is refuted without the run that shows it. What a search merely counts, because no capability of the subject
rules it out, is a note, and refutes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from kvproof.check.oracle import coverage
from kvproof.check.oracle.level import Level, level_of
from kvproof.check.protocol.own_property import OWN_PROPERTY
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.session import NOT_RUN
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import STRATEGIES
from kvproof.reports.evidence import PrintedRun, SavedRun, refuted
from kvproof.reports.identity import Identity, operation_named
from kvproof.reports.result import PROMISED_BY_NOBODY, REFUSED, Check, Refusals, WitnessCount
from kvproof.reports.summary import number
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.verdict import Verdict

REPEATED = "nondeterministic"
NO_STEP = "It shows when the subject is opened; no step is needed."  # of a run without operations
NOTHING_ACCEPTED = f"{REFUSED} that was drawn: it raises Unsupported for each, or --fix excludes it"
STOPPED = "stopped at the first finding"
NO_TIME = "the time limit (--budget) was over before this judge began"
SHOWN_BY = {  # of a note: the capability with which it would be a finding
    "hit-complete": "; with `lost_hits=0` in its `capabilities`, a run that shows one is a finding",
    "refusal-needed": "; with `refusal_slack=0` in its `capabilities`, a run that shows one is a finding",
}
NOT_WANTED = "not what is hunted for"
NOT_ASKED = "every state was counted again, and claims about the property were not asked"
EXCUSED_ONLY = "its only findings are excused"


@dataclass
class JudgeOutcome:
    """The outcome of a search.

    verdict: of every property that it did not refute. counts: what it did, such as operations or states. text: the
    reason of the verdict. refutations: the checks of findings (`refuted_by`). claims, claims_left_out: as in a
    `SearchResult`; a property is at most not refuted if a claim about it was left out. notes: what was seen and is no
    finding, by property.
    """

    verdict: Verdict
    counts: dict[str, int]
    seconds: float
    text: str = ""
    refutations: list[Check] = field(default_factory=list)
    claims: Mapping[str, list[str]] = field(default_factory=dict)
    claims_left_out: Mapping[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


def planned_checks(level: Level, judge: str, subject: Any) -> list[Check]:
    """A check for every property, undecided, or unsupported with a reason if this level cannot decide it.

    A random walk decides `nondeterministic` too, because it repeats its first runs.
    """
    facts = level.facts_of(subject)
    names = [*MEANINGS, *([OWN_PROPERTY] if facts.can.own_property else [])]
    reasons = {name: level.unsupported(name, facts) for name in names}
    if any(judge == strategy.judge for strategy in STRATEGIES.values()):
        reasons[REPEATED] = None
    return [undecided(judge, name, reason=reason) for name, reason in reasons.items()]


def planned_checks_of_scopes(judge: str, scopes: Mapping[str, Scope], subject: Any | None) -> list[Check]:
    """A check for every property in every scope where it has a meaning, and one for each unsupported property.

    Without a subject: only the properties that the text of the specification itself has.
    """
    if subject is None:
        whole = [undecided(judge, name) for name in coverage.properties_of_the_specification()]
    else:
        whole = planned_checks(level_of(subject), judge, subject)
    unsupported = [check for check in whole if check.verdict is Verdict.UNSUPPORTED]
    open_names = {check.property for check in whole} - {check.property for check in unsupported}
    checks = [
        undecided(judge, property, name)
        for name, scope in scopes.items()
        for property in (*MEANINGS, OWN_PROPERTY)
        if property in open_names and coverage.has_meaning(property, scope)
    ]
    return checks + unsupported


def undecided(judge: str, property: str, scope: str = "", reason: str | None = None) -> Check:
    """A check before the search. reason: why it is unsupported; None if the search decides it."""
    verdict = Verdict.UNKNOWN if reason is None else Verdict.UNSUPPORTED
    return Check(_id(judge, property, scope), judge, property, verdict, text=NOT_RUN if reason is None else reason)


def _id(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def refuted_by(
    judge: str, identity: Identity, shown: SavedRun | PrintedRun, excused: str = "", name: str = ""
) -> Check:
    """The check of a finding, refuted by its run.

    excused: why it is no failure; empty if it is one. name: a part of the id, of a finding that is one of several.
    """
    property, signature, former = identity.property, identity.signature, identity.former
    check = Check(_id(judge, property, name), judge, property, Verdict.UNKNOWN, signature=signature, former=former)
    check.excused = excused
    return refuted(check, shown)


def resolve_checks(judge: str, planned: list[Check], outcome: JudgeOutcome, scope: str = "") -> Iterator[Check]:
    """The checks after the search. A finding refutes its property even if its check was planned as unsupported."""
    refuted = {found.property for found in outcome.refutations if not found.excused}
    for found in outcome.refutations:
        is_named = found.id != _id(judge, found.property, scope)  # one search is counted once
        yield replace(found, seconds=outcome.seconds, counts={} if is_named else outcome.counts)
    excused = {found.property for found in outcome.refutations} - refuted
    noted = {name: text for name, text in outcome.notes.items() if name not in refuted}
    yield from _noted(judge, planned, noted, outcome, scope)
    for check in planned:
        if check.property not in refuted and check.property not in noted and check.verdict is Verdict.UNKNOWN:
            text = EXCUSED_ONLY if check.property in excused else outcome.text
            decided = replace(check, verdict=outcome.verdict, seconds=outcome.seconds, counts=outcome.counts, text=text)
            yield _with_claims(decided, outcome)


def _with_claims(check: Check, outcome: JudgeOutcome) -> Check:
    """The check with the claims that were asked. What was not asked of every state is not exhausted."""
    asked, left_out = (list(of.get(check.property, ())) for of in (outcome.claims, outcome.claims_left_out))
    verdict, text = check.verdict, check.text
    if left_out and verdict is Verdict.EXHAUSTED:
        verdict = Verdict.NOT_REFUTED
        text = "; ".join(part for part in (text, NOT_ASKED) if part)
    return replace(check, verdict=verdict, text=text, claims=asked, claims_left_out=left_out)


def named(found: Check, others: Iterable[Check]) -> Check:
    """Give a finding a check id of its own, so that it does not decide the property's verdict.

    others: findings of the same search. None of them has the same id.
    """
    cause = operation_named(found.signature).replace(" ", "-")
    ids = chain([_id(found.id, cause)], (_id(found.id, f"{cause}-{number}") for number in count(2)))
    taken = {other.id for other in others}
    found.id = next(one for one in ids if one not in taken)
    return found


def _noted(
    judge: str, planned: list[Check], noted: Mapping[str, str], outcome: JudgeOutcome, scope: str
) -> Iterator[Check]:
    """The checks of the properties of which something was noted."""
    by_name = {check.property: check for check in planned}
    for name, text in noted.items():
        check = by_name.get(name) or Check(_id(judge, name, scope), judge, name, Verdict.UNSUPPORTED)
        reason = check.text if check.verdict is Verdict.UNSUPPORTED and check.text else PROMISED_BY_NOBODY
        check = replace(check, seconds=outcome.seconds, counts=outcome.counts)
        yield replace(check, verdict=Verdict.UNSUPPORTED, text=reason, note=text)


def notes(counts: Mapping[str, int], num_done: int, kind: str) -> dict[str, str]:
    """What was seen and is no finding, such as missed cache hits, by property. kind: what `num_done` counts."""
    seen = {name: f"{number(count, 'time', 'times')} in {num_done:,} {kind}" for name, count in counts.items() if count}
    return {name: f"{text}{SHOWN_BY.get(name, '')}" for name, text in seen.items()}


def refused_by_subject(judge: str, reasons: Counter[str], num_asked: int) -> Iterator[Refusals]:
    """What the report says of the configurations that the subject refused, if it refused any. num_asked: in all."""
    if reasons:
        yield Refusals(judge, reasons.total(), num_asked, dict(reasons.most_common()))


def sizes_expected(done: SearchResult) -> dict[str, bool]:
    """The sizes of configurations as situations, each with whether the search must reach it.

    A subject that refuses every configuration of a size was not seen in any, and a fault may need it.
    """
    return {name: name in done.sizes_missed() for name in done.sizes}


def witness_counts(judge: str, counts: Counter[str], expected: Mapping[str, bool]) -> Iterator[WitnessCount]:
    """How often each witness occurred. expected: the witnesses to list in any case, each with whether it must occur."""
    for name in [*expected, *(name for name in sorted(counts) if name not in expected)]:
        yield WitnessCount(name, judge, counts[name], expected.get(name, False))
