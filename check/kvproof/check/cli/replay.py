"""`kvproof replay`: run saved counterexamples again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvproof.check.cli.options import IsolationOption
from kvproof.check.runs.errors import error_boundary
from kvproof.spec.verdict import Exit

if TYPE_CHECKING:
    from kvproof.check.counterexample.replay import Replay

WORST_FIRST = (Exit.REFUTED, Exit.USAGE, Exit.INCONCLUSIVE, Exit.OK)


def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Saved counterexamples.")],
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="S", help="Replay on this subject instead of the one named in the file."),
    ] = None,
    isolation: IsolationOption = None,
    page: Annotated[
        bool, typer.Option("--page", help="Write the HTML page of each counterexample again, from this replay.")
    ] = False,
) -> None:
    """Replay each counterexample and report FIXED, FAILED or ERROR.

    Exits with 1 if one FAILED; else with 2 if a file is no counterexample or a subject does not exist; else with 4 if
    one could not be replayed.
    """
    with error_boundary():
        from kvproof.check.runs import replay as runs
        from kvproof.check.runs.terminal import output, say

        console, codes = output(), set()
        for path in files:
            done = runs.replay(path, subject, isolation)
            first, *rest = done.text.splitlines() or [""]
            say(console, f"{done.status}  {path}: {first}")
            for line in rest:
                say(console, f"  {line}")
            codes.add(_code(done))
            if page and str(done.status) != "ERROR":
                say(console, f"  Page: {runs.redraw(path, subject, isolation)}")
        raise typer.Exit(next(code for code in WORST_FIRST if code in codes))


def _code(done: "Replay") -> Exit:
    if done.finding is not None:
        return Exit.REFUTED
    if str(done.status) != "ERROR":
        return Exit.OK
    return Exit.USAGE if done.is_misnamed else Exit.INCONCLUSIVE
