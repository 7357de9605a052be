"""`kvproof faults`: break the specification and the proofs on purpose, and report which judge notices."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.options import JsonOption, workers_option
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.extras import require_extra


class Faulty(StrEnum):
    """What the faults are planted in."""

    SPECIFICATION = "spec"
    IMPLEMENTATION = "impl"
    FRESH = "fresh"
    SECOND = "second"
    SHIPPED = "shipped"


class FaultJudge(StrEnum):
    """A judge that can be asked."""

    PROVER = "prover"
    EXPLORER = "explorer"
    PIN = "pin"
    CROSS_CHECK = "cross-check"
    SUITE = "suite"


OfOption = Annotated[
    Faulty,
    typer.Option(
        "--of",
        help="Plant faults in the specification and its proofs (spec), or in block managers (impl): those of "
        "kvproof, and those of the engines that are downloaded. In these too, fresh, second and shipped plant faults "
        "that no search was written for; shipped, only in vLLM V1.",
    ),
]
JudgesOption = Annotated[
    list[FaultJudge] | None,
    typer.Option("--judge", help="Judge of the specification to ask. Repeatable; by default all of them."),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="PATTERN",
        help="Plant only these faults: those of a rule or step, of a kind such as 'rules' or 'machinery', or "
        "those that match a pattern such as 'drop_*' or 'guards/*'. With the others: those of a subject, of a "
        "kind, or that match a pattern such as 'kvproof/swap-*'. Repeatable.",
    ),
]
DeletionsOption = Annotated[bool, typer.Option("--deletions", help="Only delete statements; do not change any.")]
WorkersOption = Annotated[str, workers_option("Number of processes, or a Ray cluster; ray starts one here.", "--jobs")]
FileOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write each result to this file as soon as it is known."),
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Use the results in the file of --out again if fault, code, solvers and judges are still the same.",
    ),
]


def faults(
    of: OfOption = Faulty.SPECIFICATION,
    judge: JudgesOption = None,
    only: OnlyOption = None,
    deletions_only: DeletionsOption = False,
    workers: WorkersOption = "2",
    out: FileOption = None,
    resume: ResumeOption = False,
    json: JsonOption = None,
) -> None:
    """Plant faults in the specification and in the machinery that proves it; report which judge notices each.

    A rule that is broken in a small way is a mutant. It is killed by an obligation that is no longer proved, or by an
    exploration that breaks a claim or reaches other states. Otherwise it is proved to be equivalent to the original
    rule, or it is alive: no judge notices the change, and the exit code is 1.

    The other kinds of faults are theorems, invariants, contracts, guards and checks that ask less, changes by hand,
    faults of the machinery, and faults of those methods of kvproof's own code that are proved ('code'). They are
    noticed by a proof, the explorer, the pin, the cross-check or a test. Faults of the machinery and of code need a
    checkout, because they are judged in a copy of it.

    With --of impl, each fault of the catalogue is planted in a copy of a block manager, and the searches of
    kvproof verify judge the copy; a fault of what moves bytes is judged as kvproof device does, on the CPU. A fault
    that they do not find has a reason in the catalogue: nobody can notice it, or docs/blind-spots.md names what is not
    looked at. If one has no reason, or is found in spite of it, the exit code is 1. Faults of engines that are not
    downloaded are not judged.

    With --of fresh, the same is done with a second catalogue. Its faults were written from the code of the subjects
    alone, so the share that is found says how good the searches are. With --of second, it is done with a further list
    of this kind; with --of shipped, with a list in what vLLM V1 does as it is shipped.
    """
    with error_boundary(json):
        if resume and out is None:
            raise UsageError("--resume needs the file of the earlier run; name it with --out")
        if of is not Faulty.SPECIFICATION:
            from kvproof.audit.cli.faults_impl_run import run_catalogue

            if judge or deletions_only:
                raise UsageError("--judge and --deletions choose faults of the specification; leave them out")
            raise typer.Exit(run_catalogue(of.value, tuple(only or ()), workers, json, out, resume))
        require_extra("prove", "kvproof faults --of spec")
        from kvproof.audit.cli.faults_run import FaultRequest, run_faults

        judges = tuple(one.value for one in FaultJudge if not judge or one in judge)
        request = FaultRequest(judges, tuple(only or ()), deletions_only, workers, json, out, resume)
        raise typer.Exit(run_faults(request))
