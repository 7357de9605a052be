"""`kvproof baseline`: accept the result of a run as the baseline of later runs."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.runs.errors import error_boundary

DEFAULT_FILE = Path("kvproof-baseline.json")

baseline = typer.Typer(
    no_args_is_help=True, help="Write the file that verify and hunt compare with, when --baseline names it."
)


@baseline.callback()
def of_a_result() -> None:
    """Baselines are results of earlier runs."""


@baseline.command()
def accept(
    result: Annotated[
        Path, typer.Argument(metavar="RESULT", help="A result document, or the --out folder of a run.", exists=False)
    ],
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The baseline to write.")] = DEFAULT_FILE,
) -> None:
    """Accept what a run found and reached: later runs must not be worse.

    The baseline has neither times nor facts of the machine, so a commit shows what has changed. What is worse or better
    than in the baseline that it replaces is printed.
    """
    with error_boundary():
        from kvproof.check.runs.store import RESULT, explained
        from kvproof.check.runs.terminal import output, say
        from kvproof.reports.baseline import accepted, difference, findings, read_baseline
        from kvproof.reports.document import encode, write_atomically
        from kvproof.reports.summary import number, work, work_line

        new, console = accepted(read_baseline(result / RESULT if result.is_dir() else result)), output()
        if to.exists():
            changes = difference(str(to), read_baseline(to, new.run.subject), new)
            for line in [*(f"worse: {one}" for one in changes.worse), *(f"better: {one}" for one in changes.better)]:
                say(console, line)
        with explained(to):
            write_atomically(to, encode(new))
        done = "; ".join(f"{judge} {work_line(counts)}" for judge, counts in work(new).items() if counts)
        say(console, f"{to} accepts {number(len(findings(new)), 'finding', 'findings')} of {new.run.subject}; {done}.")
