"""`kvproof gate`: what a change in a git repository adds, repairs and leaves of the findings of one subject."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.hunt import FixOption, HuntedOption, LevelOption
from kvproof.check.cli.options import LikeOption, OutOption
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.check.runs.number_limits import SEED_MAX

DEFAULT_FOLDER = Path(".kvproof/gate")
DEFAULT_EFFORT = "100000"


def gate(
    base: Annotated[
        str, typer.Option("--base", metavar="REF", help="The state before the change: a commit or branch.")
    ],
    subject: HuntedOption = None,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="REF", help="The state after the change. Default: the working tree as it is."),
    ] = None,
    like: LikeOption = None,
    level: LevelOption = None,
    effort: Annotated[
        str,
        typer.Option(
            "--effort", metavar="quick|normal|long|N", help="How much each of both hunts does, as for `hunt`."
        ),
    ] = DEFAULT_EFFORT,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, max=SEED_MAX, help="Seed of both hunts.")] = 1,
    fix: FixOption = None,
    out: OutOption = DEFAULT_FOLDER,
) -> None:
    """Hunt the states before and after a change, and report what it adds, repairs and leaves.

    The subject is FILE.py:factory or module:factory of the repository around the working folder, or an engine whose
    checkout this is, as vllm-v1 or vllm-v1==PATH. The result of the first state is kept. Exit codes: 0 if nothing is
    added, 6 if a finding is or if less was judged, 4 if the second hunt left something open.
    """
    with error_boundary():
        from kvproof.check.hunting.gate.judged import GateOptions
        from kvproof.check.hunting.gate.judged import gate as run
        from kvproof.check.runs.effort import effort_of

        if subject is None:
            raise UsageError("no subject is given: name it with --subject, as `kvproof hunt` takes it")
        words = [word for one in fix or [] for word in ("--fix", one)] + ([] if level is None else ["--level", level])
        raise typer.Exit(
            run(GateOptions(subject, base, head, like, seed, effort_of(effort, None, subject).name, out, words))
        )
