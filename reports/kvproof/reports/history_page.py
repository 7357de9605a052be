"""The page of a history: one HTML file that makes no request, with a table and charts for each subject.

The charts are small SVG drawings in the template, without a library. Their numbers are also in the table below them,
and each has a title that a screen reader reads.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from kvproof.reports.history import FLAKY, OPEN, SubjectHistory
from kvproof.reports.history_text import when_of
from kvproof.reports.recorded_run import RecordedRun
from kvproof.reports.speed_history import HOW_DECIDED
from kvproof.reports.summary import number
from kvproof.reports.template import render

TEMPLATE = "history_page.html"
LEFT, RIGHT, TOP, FLOOR = 56, 332, 10, 108  # edges of the area of a chart; the drawing has 340 x 130 units
CHART_MAX = 400  # runs in a chart; the latest
CLASS_OF = {FLAKY: "open", OPEN: "wrong"}


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
