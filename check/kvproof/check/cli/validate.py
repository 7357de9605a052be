"""`kvproof validate`: check recordings of live block managers against the specification."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvproof.check.cli.options import DEFAULT_FOLDER, JsonOption, OutOption
from kvproof.check.runs.errors import error_boundary, fail

if TYPE_CHECKING:
    from rich.console import Console

    from kvproof.reports.result import Result


def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Recordings, plain or gzip; - reads standard input.")
    ],
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Check recordings of live block managers against the specification. Reports the first line that diverges.

    Exits with 0 if every recording is consistent, 1 if one diverges; else with 2 if a file is not a recording; else
    with 4 if one could not be judged to its end (it starts in the middle of a run, has no end line, uses a feature that
    is not judged, or the command was interrupted), and with 5 if there was no call to judge.
    """
    with error_boundary(json):
        import time

        from kvproof.check.runs.run import host, now, version, write_json
        from kvproof.check.runs.store import Store
        from kvproof.check.runs.terminal import output, say
        from kvproof.reports.result import Result, Run
        from kvproof.reports.terminal import print_report
        from kvproof.spec.verdict import Exit

        console = output()
        result, began = Result(Run(version(), "validate", "", 0, host(), now())), time.monotonic()
        store = Store(out)
        store.claim()
        is_broken, is_interrupted = _judge(files, result, console)
        result.run.is_complete = not (is_broken or is_interrupted)
        result.run.seconds = round(time.monotonic() - began, 3)
        result.count_totals()
        store.open(result)
        if json is not None:
            write_json(result, out, json)
        say(console, "")
        print_report(result, out, console)
        code = result.exit_code()
        raise typer.Exit(Exit.USAGE if is_broken and code is not Exit.REFUTED else code)


def _judge(files: list[Path], result: "Result", console: "Console") -> tuple[bool, bool]:
    """Judge the recordings; return whether a file is none, and whether the user ended it. Exits if none was judged."""
    from kvproof.check.cli.validate_report import add, scope_of, verdict_line
    from kvproof.check.hosts.interrupt import interruptible
    from kvproof.check.recording import validate
    from kvproof.check.recording.reader import RecordingError
    from kvproof.check.runs.terminal import PlainProgress, say
    from kvproof.spec.verdict import Exit

    subjects: dict[str, None] = {}
    progress = PlainProgress(console)
    progress.stage = "lines"
    is_broken = is_interrupted = False
    for path in dict.fromkeys(files):
        try:
            with interruptible():
                done = validate.validate(path, progress.advance)
        except RecordingError as error:  # what was found in the other files is not lost
            fail(str(error), Exit.USAGE)
            result.messages.append(str(error))
            is_broken = True
            continue
        except KeyboardInterrupt:
            if not subjects:
                raise
            result.messages.append(f"interrupted: {path} was not judged")
            is_interrupted = True
            break
        say(console, verdict_line(done))
        add(result, done, scope_of(path, len(files)))
        subjects[done.header.manager] = None
        result.run.subject = ", ".join(subjects)
        is_interrupted = done.is_interrupted
        if is_interrupted:
            break
    if not subjects:
        raise typer.Exit(Exit.USAGE)
    return is_broken, is_interrupted
