"""`kvproof replay`: run saved counterexamples again."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.commands.guard import guarded


def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Saved counterexamples.")],
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="S", help="Another subject than the one it was found in.")
    ] = None,
) -> None:
    """Say of each counterexample FIXED, FAILED or ERROR. Exits with 1 if one FAILED, else with 4 if one is an ERROR."""
    with guarded():
        from kvproof.check import crash
        from kvproof.check.commands.guard import UsageError
        from kvproof.check.commands.output import output, say
        from kvproof.spec.verdict import Exit

        console, codes = output(), set()
        for path in files:
            try:
                done = crash.replay(path, subject)
            except crash.CrashFileError as error:
                raise UsageError(str(error)) from error
            status = str(done.status)
            first, *rest = done.text.splitlines() or [""]
            say(console, f"{status}  {path}{': ' if first else ''}{first}")
            for line in rest:
                say(console, f"  {line}")
            codes.add({"FIXED": Exit.OK, "FAILED": Exit.REFUTED}.get(status, Exit.INCONCLUSIVE))
        worst = next(code for code in (Exit.REFUTED, Exit.INCONCLUSIVE, Exit.OK) if code in codes)
        raise typer.Exit(worst)
