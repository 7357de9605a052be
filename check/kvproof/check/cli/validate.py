"""`kvproof validate`: whether what a live manager answered is what the specification says."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.options import DEFAULT_FOLDER, JsonOption, OutOption
from kvproof.check.runs.errors import error_boundary


def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Recordings; - is standard input. May be gzip.")
    ],
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Explain recordings of live block managers by the specification: consistent, or the first line that is not.

    Exits with 0 if each is consistent, 1 if one diverges, 2 if a file is no recording, 4 if one could not be judged to
    its end (it begins in the middle of a run, or does what is not judged), 5 if there was no call to judge.
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
