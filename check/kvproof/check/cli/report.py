"""`kvproof report`: render the reports of a stored result again."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.runs.errors import error_boundary


def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of a run.")]) -> None:
    """Write the reports of a stored run again (text, page, Markdown, JUnit, SARIF), print it, and exit with its code.

    The pages of counterexamples need a replay: `kvproof replay FILE --page` writes them.
    """
    with error_boundary():
        from kvproof.check.runs.store import RESULT, Store
        from kvproof.check.runs.terminal import output
        from kvproof.reports.document import read
        from kvproof.reports.result import Result
        from kvproof.reports.terminal import print_report

        result = read(folder / RESULT, Result)
        Store(folder).write_reports(result)
        Store(folder).write_device_page(result)
        print_report(result, folder, output())
        raise typer.Exit(result.exit_code())
