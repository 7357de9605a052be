"""`kvproof hunt`: look for counterexamples of one subject."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.options import (
    DEFAULT_FOLDER,
    BudgetOption,
    ContractOption,
    IsolationOption,
    JsonOption,
    KnownOption,
    OutOption,
    SeedOption,
    settled_seed,
)
from kvproof.check.runs.errors import UsageError, error_boundary

NUM_OPERATIONS_MAX = 10**12  # the budget ends the walk
EXPLORER_SHARE, EXPLORER_SECONDS_MAX = 15.0, 15.0  # percent of the budget: most is for the walker
LEVELS = ("pool", "manager", "loop")


def hunt(
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="S", help="A name of `kvproof subjects`, or module:factory of your own."),
    ] = None,
    level: Annotated[
        str | None, typer.Option("--level", metavar="LEVEL", help="pool, manager or loop, if S has several.")
    ] = None,
    budget: BudgetOption = 60.0,
    seed: SeedOption = None,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going/--stop-at-first",
            help="Hunt until the time is up, one finding of each kind; or end at the first.",
        ),
    ] = True,
    wanted: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="ID", help="Hunt for this; any other finding is told and is no failure. Repeatable."
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", metavar="NAME=VALUE", help="Keep a field of the configuration, such as caching=false."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="DIR", help="Go on with the hunt whose --out folder this is.")
    ] = None,
    isolation: IsolationOption = None,
    known: KnownOption = None,
    contract_fails: ContractOption = False,
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Look for counterexamples of one subject: growing scopes first, then random walks until the budget ends.

    A loud fault does not end it: findings are grouped by property and mechanism, one of each is minimised, saved and
    told as soon as it is there, and later runs are steered around it.
    """
    with error_boundary(json):
        from kvproof.check.runs.explore_stage import subject_stage
        from kvproof.check.runs.fixed_fields import agrees, fixed_fields, wanted_properties
        from kvproof.check.runs.gate_pool import HUNTED_POOL_SCOPES
        from kvproof.check.runs.gate_scopes import HUNTED_SCOPES
        from kvproof.check.runs.resume import Bookmark, Progress, resumed
        from kvproof.check.runs.run import Request, run_stages
        from kvproof.check.runs.subject_lookup import factory_of, level_of
        from kvproof.check.runs.walk_stage import walker_stage

        if resume is not None and (fix or wanted):
            option = "--fix" if fix else "--property"
            raise UsageError(f"--resume goes on with what the hunt was told to keep; leave {option} out")
        if resume is not None:
            bookmark = resumed(resume, subject, seed)
        elif subject is None:
            raise UsageError("hunt whom? name --subject, or --resume the folder of a hunt")
        else:
            kept = fixed_fields(fix or []), wanted_properties(wanted or [])
            bookmark = Bookmark(out, Progress(subject, settled_seed(seed), *kept))
        progress = bookmark.progress
        make, one = factory_of(progress.subject, isolation, budget)
        if level is not None and level != level_of(one):
            wrong = f"there is no level {level!r}; there are {', '.join(LEVELS)}"
            raise UsageError(f"{progress.subject} is of level {level_of(one)}" if level in LEVELS else wrong)
        request = Request("hunt", progress.subject, progress.seed, budget, bookmark.folder, json, known, contract_fails)
        saving = request.saving(make)
        saving.wanted = frozenset(progress.properties)
        bookmark.remind(saving)
        stages = [bookmark.stage()] if bookmark.earlier else []
        hunted_scopes = {"manager": HUNTED_SCOPES, "pool": HUNTED_POOL_SCOPES}.get(level_of(one), {})
        if hunted_scopes:
            scopes = {
                name: scope
                for name, scope in hunted_scopes.items()
                if name not in progress.scopes and agrees(scope, progress.fixed)
            }
            done = bookmark.scope_is_done
            share = min(EXPLORER_SHARE, 100 * EXPLORER_SECONDS_MAX / budget)
            stages.append(subject_stage(make, one, scopes, saving, share, True, keep_going, done))
        share = 100.0 - sum(stage.share for stage in stages)
        stages.append(walker_stage(make, one, saving, share, NUM_OPERATIONS_MAX, keep_going, bookmark, progress.fixed))
        raise typer.Exit(run_stages(request, stages, one, stops_at_first=not keep_going and resume is None))
