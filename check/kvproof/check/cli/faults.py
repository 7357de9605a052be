"""`kvproof faults`: the rules broken on purpose, and who notices."""

from enum import Enum
from typing import Annotated

import typer

from kvproof.check.cli.options import JsonOption
from kvproof.check.runs.errors import error_boundary


class FaultJudge(str, Enum):
    """Who is asked."""

    PROVER = "prover"
    EXPLORER = "explorer"


def faults(
    judge: Annotated[
        list[FaultJudge] | None,
        typer.Option("--judge", help="Who is asked; repeatable, both if none is named: the prover first."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Rules or steps, * for anything: 'drop_*'. Repeatable."),
    ] = None,
    deletions_only: Annotated[
        bool, typer.Option("--deletions", help="Only statements left out, and not changed.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=256, help="Processes.")] = 2,
    json: JsonOption = None,
) -> None:
    """Break each rule of the specification in every small way, and tell which judge notices it.

    A mutant is killed by an obligation that is no longer proved, or by an exploration that breaks a claim or reaches
    other states; or it is proved to be the same rule. What is alive nobody watches: exit code 1.
    """
    with error_boundary(json):
        from kvproof.check.cli.faults_run import Faulting, run_faults

        judges = tuple(one.value for one in FaultJudge if not judge or one in judge)
        raise typer.Exit(run_faults(Faulting(judges, tuple(only or ()), deletions_only, jobs, json)))
