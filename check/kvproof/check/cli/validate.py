"""`kvproof validate`: check recordings of live block managers against the specification."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.options import DEFAULT_FOLDER, JsonOption, OutOption
from kvproof.check.runs.errors import error_boundary


def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Recordings, plain or gzip; - reads standard input.")
    ],
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Check recordings of live block managers against the specification. Reports the first line that diverges.

    Exits with 0 if every recording is consistent, 1 if one diverges, 2 if a file is not a recording, 4 if one could not
    be judged to its end (it starts in the middle of a run, or uses a feature that is not judged), 5 if there was no
    call to judge.
    """
    with error_boundary(json):
        import time

        from kvproof.check.cli.validate_report import add, scope_of, verdict_line
        from kvproof.check.recording import validate
        from kvproof.check.runs.run import host, now, version, write_json
        from kvproof.check.runs.store import Store
        from kvproof.check.runs.terminal import PlainProgress, output, say
        from kvproof.reports.result import Result, Run
        from kvproof.reports.terminal import print_report

        console = output()
        result, began = Result(Run(version(), "validate", "", 0, host(), now())), time.monotonic()
        store = Store(out)
        subjects: dict[str, None] = {}
        progress = PlainProgress(console)
        progress.stage = "lines"
        for path in files:
            done = validate.validate(path, progress.advance)
            say(console, verdict_line(done))
            add(result, done, scope_of(path, len(files)))
            subjects[done.header.manager] = None
            result.run.subject = ", ".join(subjects)
        result.run.is_complete, result.run.seconds = True, round(time.monotonic() - began, 3)
        result.count_totals()
        store.open(result)
        if json is not None:
            write_json(result, out, json)
        say(console, "")
        print_report(result, out, console)
        raise typer.Exit(result.exit_code())
