"""A history at a terminal of 80 columns, as JSON, and as a page.

The page is one HTML file that makes no request, with a table and charts for each subject.

The charts are small SVG drawings in the template, without a library. Their numbers are also in the table below them,
and each has a title that a screen reader reads.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from kvproof.reports.history import FLAKY, OPEN, SubjectHistory
from kvproof.reports.recorded_run import RecordedRun
from kvproof.reports.speed_history import HOW_DECIDED
from kvproof.reports.summary import number
from kvproof.reports.template import render

Line = tuple[str, str]  # text, style
HEAD = f" {'run':<10} {'started (UTC)':<16} {'command':<7} {'outcome':<12} {'found':>5} {'operations':>12} {'op/s':>9}"
SHORT = {"worse than baseline": "worse", "nothing checked": "nothing"}  # outcomes that are too long for the table
STYLE_OF = {"ok": "green", "refuted": "bold red", FLAKY: "yellow", OPEN: "red"}

TEMPLATE = "history_page.html"
LEFT, RIGHT, TOP, FLOOR = 56, 332, 10, 108  # edges of the area of a chart; the drawing has 340 x 130 units
CHART_MAX = 400  # runs in a chart; the latest
CLASS_OF = {FLAKY: "open", OPEN: "wrong"}


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


@dataclass(frozen=True)
class Mark:
    """One run in a chart. title: what a tooltip shows. is_marked: drawn as a ring."""

    x: float
    y: float
    title: str
    is_marked: bool


@dataclass(frozen=True)
class Chart:
    """A chart with a vertical axis from 0 to `top`. lines: the points of each line. title: the chart in a sentence."""

    caption: str
    title: str = ""
    top: str = ""
    lines: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()


def history_page(subjects: Sequence[SubjectHistory]) -> str:
    """Render the page."""
    return render(
        TEMPLATE,
        {"when": when_of, "number": number, "count": lambda value: f"{value:,.0f}"},
        subjects=subjects,
        charts={subject.name: charts(subject) for subject in subjects},
        classes=CLASS_OF,
        how_decided=HOW_DECIDED,
        num_runs=sum(len(subject.runs) for subject in subjects),
        num_flaky=sum(len(subject.flaky) for subject in subjects),
        num_slow=sum(len(subject.slow_runs) for subject in subjects),
        num_open=sum(one.state == OPEN for subject in subjects for one in subject.findings),
    )


def charts(subject: SubjectHistory) -> list[Chart]:
    """The charts of a subject: findings, operations, what was reached, and the speed on each host."""
    runs = subject.runs[-CHART_MAX:]
    found = [
        chart("findings of each run", runs, lambda run: len(run.identities)),
        chart("operations of each run", runs, lambda run: run.operations or None),
        chart("rules, witnesses and kinds of operations that each run reached", runs, _num_reached),
    ]
    slow = subject.slow_runs
    for host in dict.fromkeys(run.host for run in runs):
        mine = [run for run in runs if run.host == host]
        caption = f"operations per processor second on {host}"
        caption += "; a ring is slower than usual" if slow & {run.id for run in mine} else ""
        found.append(chart(caption, mine, lambda run: run.operations_per_second, slow))
        for name in dict.fromkeys(speed.name for run in mine for speed in run.speeds):
            moves = {speed.run.id for speed in subject.moves if speed.is_slow and speed.what.startswith(f"{name}, ")}
            caption = f"{name} on {host}: its slowest move, as a ratio to a plain copy"
            caption += "; a ring is slower than usual" if moves else ""
            found.append(chart(caption, mine, partial(_slowest, name), moves))
    return found


def _slowest(name: str, run: RecordedRun) -> float | None:
    """The least ratio of an executor; None if the run did not time it."""
    return min((speed.ratio for speed in run.speeds if speed.name == name), default=None)


def _num_reached(run: RecordedRun) -> float | None:
    return sum(one.count > 0 for one in run.reached) or None


def chart(
    caption: str,
    runs: Sequence[RecordedRun],
    value_of: Callable[[RecordedRun], float | None],
    marked: Collection[str] = (),
) -> Chart:
    """A chart of a number of each run, the first run on the left. A run without the number leaves a gap.

    marked: the ids of the runs to mark.
    """
    values = [value_of(run) for run in runs]
    known = [value for value in values if value is not None]
    if not known:
        return Chart(caption)
    top = max(known) or 1.0
    width, height = RIGHT - LEFT, FLOOR - TOP
    marks: list[Mark] = []
    lines: list[list[str]] = [[]]
    for index, (run, value) in enumerate(zip(runs, values, strict=True)):
        if value is None:
            lines.append([])
            continue
        x, y = LEFT + index * width / max(len(runs) - 1, 1), TOP + height * (1 - value / top)
        lines[-1].append(f"{x:.1f},{y:.1f}")
        text = f"{run.started[:16].replace('T', ' ')}, run {run.id}, {run.command}: {value:,.6g}"
        marks.append(Mark(round(x, 1), round(y, 1), text, run.id in marked))
    counted = number(len(known), "run", "runs")
    title = f"{caption}: from {known[0]:,.6g} to {known[-1]:,.6g} in {counted}; the largest is {max(known):,.6g}"
    return Chart(caption, title, _short(top), tuple(" ".join(part) for part in lines if len(part) > 1), tuple(marks))


def _short(value: float) -> str:
    """A number for an axis: 12,000,000 as 12M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * size:
            return f"{value / size:,.0f}{unit}"
    return f"{value:,.4g}"
