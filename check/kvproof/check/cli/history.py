"""`kvproof history` and `kvproof compare`: what earlier runs found, and what differs between two of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvproof.check.runs.errors import UsageError, error_boundary

if TYPE_CHECKING:
    from kvproof.reports.recorded_run import RecordedRun
    from kvproof.reports.result import Result

LAST = 20
HistoryFile = Annotated[
    Path | None,
    typer.Option("--history", metavar="FILE", help="The history; by default the file that kvproof.toml names."),
]


def history(
    history: HistoryFile = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="S", help="Show this subject only; a release may follow (==0.7).")
    ] = None,
    last: Annotated[
        int, typer.Option("--last", metavar="N", min=1, max=100_000, help="List the last N runs of each subject.")
    ] = LAST,
    as_json: Annotated[bool, typer.Option("--json", help="Print the history as JSON instead.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the history as a page that needs no network.")
    ] = None,
) -> None:
    """Show the recorded runs: findings with first and last seen, flaky ones, trends, and regressions of speed.

    A run is recorded with --history FILE, or if kvproof.toml names a history. The exit code is 0.
    """
    with error_boundary():
        from kvproof.check.runs.history import recorded_runs
        from kvproof.check.runs.store import explained
        from kvproof.check.runs.terminal import output, say
        from kvproof.reports.document import write_atomically
        from kvproof.reports.history import histories
        from kvproof.reports.history_page import as_data, history_lines

        file = _named(history)
        runs = recorded_runs(file)
        shown = [run for run in runs if subject is None or _is_of(run, subject)]
        if not shown:
            names = ", ".join(dict.fromkeys(run.name for run in runs)) or "no runs"
            raise UsageError(f"{file} has no run of {subject}; it has {names}" if runs else f"{file} has no runs")
        found = histories(shown)
        if html is not None:
            from kvproof.reports.history_page import history_page

            with explained(html):
                write_atomically(html, history_page(found).encode("utf-8", "backslashreplace"), follows_links=True)
        if as_json:
            import json

            print(json.dumps(as_data(found, last), indent=2))
            return
        console = output()
        for line, style in history_lines(found, last):
            say(console, line, style)
        if html is not None:
            say(console, f"Page: {html}")


def compare(
    before: Annotated[
        str, typer.Argument(metavar="A", help="A result document, an --out folder, a run of the history, or a release.")
    ],
    now: Annotated[str, typer.Argument(metavar="B", help="The same, to be compared with A.")],
    history: HistoryFile = None,
) -> None:
    """Compare two results of one subject: what is new, fixed, lost or gained in B, and the speeds.

    A release is the name of a subject with it, such as vllm-v0==0.7.3, and means its last complete run in the history.
    Exit codes: 0 if B is not worse than A, 6 if it is, as with --baseline; 2 if they cannot be compared.
    """
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.reports.baseline import compare as compared

        runs: list[RecordedRun] = []
        (old, first), (new, second) = (_result_of(text, history, runs) for text in (before, now))
        found, console = compared(first, old, new), output()
        say(console, f"{second} compared with {first}, {new.run.subject}")
        for title, lines, style in (
            ("worse", found.worse, "red"),
            ("better", found.better, "green"),
            ("note", found.notes, "dim"),
        ):
            for line in lines:
                say(console, f"  {title}: {line}", style)
        say(console, "B is worse than A." if found.worse else "Nothing is worse in B than in A.")
        raise typer.Exit(found.exit_code)


def _named(history: Path | None) -> Path:
    if history is None:
        raise UsageError(
            'no history is given: name its file with --history, or with `history = "FILE"` in kvproof.toml'
        )
    return history


def _is_of(run: RecordedRun, subject: str) -> bool:
    from kvproof.reports.baseline import is_same_subject

    _, separator, release = subject.partition("==")
    return is_same_subject(run.subject, subject) and (not separator or run.release == release)


def _result_of(text: str, history: Path | None, runs: list[RecordedRun]) -> tuple[Result, str]:
    """The result that an argument names, and what a message calls it. runs: those of the history, once it is read.

    Raises UsageError, DocumentError.
    """
    from kvproof.check.runs.history import recorded_runs
    from kvproof.check.runs.store import RESULT
    from kvproof.reports.baseline import read_baseline
    from kvproof.reports.recorded_run import as_result

    path = Path(text)
    if path.is_dir() or path.is_file():
        return read_baseline(path / RESULT if path.is_dir() else path), text
    if history is None:
        raise UsageError(f"there is no file or folder {text}; to compare runs of a history, name it with --history")
    runs += [] if runs else recorded_runs(history)
    found = [run for run in runs if run.id.startswith(text)]
    if not found:
        found = [run for run in runs if "==" in text and _is_of(run, text)]
        found = [run for run in found if run.is_complete][-1:] or found[-1:]
    if len(found) != 1:
        what = f"{len(found)} runs of {history} begin with {text}" if found else f"{history} has no run {text}"
        raise UsageError(f"{what}; `kvproof history --history {history}` lists the runs")
    if not found[0].is_complete:
        raise UsageError(f"run {found[0].id} did not finish; it is not compared")
    return as_result(found[0]), f"run {found[0].id}"
