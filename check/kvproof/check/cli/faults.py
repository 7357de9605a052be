"""`kvproof faults`: break each rule of the specification on purpose, and report which judge notices."""

from enum import Enum
from typing import Annotated

import typer

from kvproof.check.cli.options import JsonOption
from kvproof.check.runs.errors import error_boundary


class FaultJudge(str, Enum):
    """A judge that can be asked."""

    PROVER = "prover"
    EXPLORER = "explorer"


def faults(
    judge: Annotated[
        list[FaultJudge] | None,
        typer.Option("--judge", help="Judge to ask. Repeatable; by default both, the prover first."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PATTERN",
            help="Break only this rule or step: a name or a pattern such as 'drop_*'. Repeatable.",
        ),
    ] = None,
    deletions_only: Annotated[
        bool, typer.Option("--deletions", help="Only delete statements; do not change any.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=256, help="Number of processes.")] = 2,
    json: JsonOption = None,
) -> None:
    """Break each rule of the specification in every small way, and report which judge notices it.

    A broken rule is a mutant. It is killed by an obligation that is no longer proved, or by an exploration that breaks
    a claim or reaches other states. Otherwise it is proved to be equivalent to the original rule, or it is alive: no
    judge notices the change, and the exit code is 1.
    """
    with error_boundary(json):
        from kvproof.check.cli.faults_run import FaultRequest, run_faults

        judges = tuple(one.value for one in FaultJudge if not judge or one in judge)
        raise typer.Exit(run_faults(FaultRequest(judges, tuple(only or ()), deletions_only, jobs, json)))
