"""`kvproof faults`: break the specification and the proofs on purpose, and report which judge notices."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.options import JsonOption
from kvproof.check.runs.errors import UsageError, error_boundary


class FaultJudge(str, Enum):
    """A judge that can be asked."""

    PROVER = "prover"
    EXPLORER = "explorer"
    PIN = "pin"
    CROSS_CHECK = "cross-check"
    SUITE = "suite"


def faults(
    judge: Annotated[
        list[FaultJudge] | None,
        typer.Option("--judge", help="Judge to ask. Repeatable; by default all of them."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PATTERN",
            help="Plant only these faults: those of a rule or step, of a kind such as 'rules' or 'machinery', or "
            "those that match a pattern such as 'drop_*' or 'guards/*'. Repeatable.",
        ),
    ] = None,
    deletions_only: Annotated[
        bool, typer.Option("--deletions", help="Only delete statements; do not change any.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=256, help="Number of processes.")] = 2,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write each result to this file as soon as it is known."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Use the results in the file of --out again if fault, code, solvers and judges are still the same.",
        ),
    ] = False,
    json: JsonOption = None,
) -> None:
    """Plant faults in the specification and in the machinery that proves it; report which judge notices each.

    A rule that is broken in a small way is a mutant. It is killed by an obligation that is no longer proved, or by an
    exploration that breaks a claim or reaches other states. Otherwise it is proved to be equivalent to the original
    rule, or it is alive: no judge notices the change, and the exit code is 1.

    The other kinds of faults are theorems, invariants, contracts, guards and checks that ask less, changes by hand, and
    faults of the machinery. They are noticed by a proof, the explorer, the pin, the cross-check or a test. Faults of
    the machinery need a checkout, because tests judge them.
    """
    with error_boundary(json):
        from kvproof.check.cli.faults_run import FaultRequest, run_faults

        judges = tuple(one.value for one in FaultJudge if not judge or one in judge)
        if resume and out is None:
            raise UsageError("--resume needs the file of the earlier run; name it with --out")
        request = FaultRequest(judges, tuple(only or ()), deletions_only, jobs, json, out, resume)
        raise typer.Exit(run_faults(request))
