"""A history at a terminal of 80 columns, and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvproof.reports.history import FLAKY, OPEN, SubjectHistory
from kvproof.reports.recorded_run import RecordedRun
from kvproof.reports.speed_history import HOW_DECIDED
from kvproof.reports.summary import number

Line = tuple[str, str]  # text, style
HEAD = f" {'run':<10} {'started (UTC)':<16} {'command':<7} {'outcome':<12} {'found':>5} {'operations':>12} {'op/s':>9}"
SHORT = {"worse than baseline": "worse", "nothing checked": "nothing"}  # outcomes that are too long for the table
STYLE_OF = {"ok": "green", "refuted": "bold red", FLAKY: "yellow", OPEN: "red"}


def history_lines(subjects: Sequence[SubjectHistory], last: int) -> Iterator[Line]:
    """The history of each subject, with the last runs in a table. last: how many; findings and speeds count all."""
    for subject in subjects:
        yield f"{subject.name}: {number(len(subject.runs), 'run', 'runs')}, {_hosts(subject.runs)}", "bold"
        yield HEAD, "dim"
        release = ""
        for run in subject.runs[-last:]:
            if run.release != release:
                release = run.release
                yield f" release {release or '(none)'}", "dim"
            yield _row(run, subject), STYLE_OF.get(run.outcome, "")
        yield from _finding_lines(subject)
        for speed in subject.slow:
            yield f" slower: run {speed.run.id}: {speed.sentence}", "yellow"
        yield "", ""
    if any(subject.slow for subject in subjects):
        yield HOW_DECIDED, "dim"


def _hosts(runs: Sequence[RecordedRun]) -> str:
    hosts = list(dict.fromkeys(run.host for run in runs))
    return f"on {hosts[0]}" if len(hosts) == 1 else f"on {len(hosts)} hosts"


def _row(run: RecordedRun, subject: SubjectHistory) -> str:
    shown = "–" if run.operations_per_second is None else f"{run.operations_per_second:,.0f}"
    mark = "↓" if run.id in subject.slow_runs else " "
    started = run.started[:16].replace("T", " ")
    outcome, done = SHORT.get(run.outcome, run.outcome), f"{run.operations:,}" if run.operations else "–"
    kinds = len(run.identities)
    return f" {run.id:<10} {started:<16} {run.command:<7} {outcome:<12} {kinds:>5} {done:>12} {shown:>8}{mark}".rstrip()


def _finding_lines(subject: SubjectHistory) -> Iterator[Line]:
    for one in subject.findings:
        yield f" {one.state}: {one.title}", STYLE_OF.get(one.state, "")
        yield f"   first seen {when_of(one.first)}, last seen {when_of(one.last)}", "dim"
        yield f"   in {one.num_seen} of {number(one.num_judged, 'run that judged', 'runs that judged')} it", "dim"
        if one.why:
            yield f"   {one.why}", "dim"


def when_of(run: RecordedRun) -> str:
    """The day and the release of a run, or its commit, or its id."""
    return f"{run.started[:10]} ({run.release or run.revision[:12] or run.id})"


def as_data(subjects: Sequence[SubjectHistory], last: int) -> dict[str, Any]:
    """The history as JSON values, with the last runs of each subject."""
    return {
        "schema_version": 1,
        "subjects": [
            {
                "name": subject.name,
                "runs": [
                    {
                        **msgspec.to_builtins(run),
                        "operations": run.operations,
                        "operations_per_processor_second": run.operations_per_second,
                        "is_slow": run.id in subject.slow_runs,
                    }
                    for run in subject.runs[-last:]
                ],
                "slower": [{"run": speed.run.id, "text": speed.sentence} for speed in subject.slow],
                "findings": [
                    {
                        "property": one.finding.property,
                        "signature": one.finding.signature,
                        "state": one.state,
                        "why": one.why,
                        "first_run": one.first.id,
                        "last_run": one.last.id,
                        "num_seen": one.num_seen,
                        "num_judged": one.num_judged,
                    }
                    for one in subject.findings
                ],
            }
            for subject in subjects
        ],
    }
