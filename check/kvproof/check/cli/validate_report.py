"""Convert the validation of recordings to a result document: one judge, with one scope for each file."""

from collections.abc import Iterator
from pathlib import Path

from kvproof.check.protocol.finding import former_signature
from kvproof.check.recording.validate import Validation, unjudged_properties
from kvproof.check.runs.verdicts import witness_counts
from kvproof.reports.evidence import DivergingLine, refuted
from kvproof.reports.result import PROMISED_BY_NOBODY, Check, Result
from kvproof.reports.summary import number
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.verdict import Verdict

JUDGE = "recording"
NO_CALLS = "the recording contains no calls"


def add(result: Result, done: Validation, scope: str) -> None:
    """Add the verdicts on one recording to a result. scope: identifies the recording; empty if there is only one."""
    result.checks += _checks(done, scope)
    result.witnesses += witness_counts(JUDGE, done.witnesses, {})
    for one in done.assumptions:
        text = f"{one.name}: {one.sentence}"
        if text not in result.run.assumptions:
            result.run.assumptions.append(text)


def _checks(done: Validation, scope: str) -> Iterator[Check]:
    unjudged = unjudged_properties(done.header)
    counts = {"lines": done.num_calls}
    for name in MEANINGS:
        check = Check("/".join(part for part in (JUDGE, name, scope) if part), JUDGE, name, Verdict.NOT_REFUTED)
        check.counts, check.seconds = counts, round(done.seconds, 3)
        if done.finding is not None and done.finding.property == name:
            check = refuted(check, DivergingLine(done.refutation(), done.line))
            check.signature = done.finding.mechanism(done.call)
            check.former = former_signature(done.finding, done.call)
        elif name in unjudged:
            check.verdict, check.text, check.counts = Verdict.UNSUPPORTED, unjudged[name], {}
        elif done.reason:
            check.verdict, check.text = Verdict.UNKNOWN, _unjudged(done)
        elif done.finding is not None:
            check.verdict, check.text = Verdict.UNKNOWN, f"judged up to line {done.line}, which diverges"
        elif not done.num_calls:
            check.verdict, check.text, check.counts = Verdict.UNSUPPORTED, NO_CALLS, {}
        elif name == "hit-complete" and done.missed_hits:
            check.verdict, check.text = Verdict.UNSUPPORTED, PROMISED_BY_NOBODY
            check.note = f"{number(done.missed_hits, 'time', 'times')} in {done.num_calls:,} lines"
        yield check


def _unjudged(done: Validation) -> str:
    return f"judged up to line {done.line}: {done.reason}"


def verdict_line(done: Validation) -> str:
    if done.finding is not None:
        return f"{done.path}: diverges at line {done.line:,}: {done.finding.property}: {done.finding.text}"
    if done.reason:
        return f"{done.path}: inconclusive, {_unjudged(done)}"
    if not done.num_calls:
        return f"{done.path}: nothing checked, {NO_CALLS}"
    rate = f", {done.num_calls / done.seconds:,.0f} lines per second" if done.seconds > 0 else ""
    return f"{done.path}: consistent, {done.num_calls:,} lines{rate}"


def scope_of(path: Path, num_files: int) -> str:
    """The scope of a file: its path, or empty if there is only one file."""
    return "" if num_files == 1 else str(path)
