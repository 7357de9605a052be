"""`kvproof hunt`: look for counterexamples of one subject."""

from typing import Annotated

import typer

from kvproof.check.commands.guard import guarded
from kvproof.check.commands.options import (
    DEFAULT_FOLDER,
    BudgetOption,
    IsolationOption,
    JsonOption,
    OutOption,
    SeedOption,
    SubjectOption,
    settled_seed,
)

NUM_OPERATIONS_MAX = 10**12  # the budget ends the walk


def hunt(
    subject: SubjectOption,
    budget: BudgetOption = 300.0,
    seed: SeedOption = None,
    isolation: IsolationOption = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after a finding; report one of each kind.")
    ] = False,
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Look for counterexamples of one subject: growing scopes first, then random walks until the budget ends."""
    with guarded():
        from kvproof.check.commands.exploring import subject_stage
        from kvproof.check.commands.gate import HUNTED_SCOPES
        from kvproof.check.commands.naming import factory_of
        from kvproof.check.commands.running import Request, run_stages
        from kvproof.check.commands.walking import walker_stage
        from kvproof.check.loop.protocol_check import is_loop_subject

        make, one = factory_of(subject, isolation, budget)
        request = Request("hunt", subject, settled_seed(seed), budget, out, json)
        saving = request.saving(make)
        if is_loop_subject(one):
            stages = [walker_stage(make, one, saving, 100, NUM_OPERATIONS_MAX, keep_going)]
            raise typer.Exit(run_stages(request, stages, one, stops_at_first=not keep_going))
        stages = [
            subject_stage(make, one, HUNTED_SCOPES, saving, 20, is_hunt=True, keeps_going=keep_going),
            walker_stage(make, one, saving, 80, NUM_OPERATIONS_MAX, keep_going),
        ]
        raise typer.Exit(run_stages(request, stages, one, stops_at_first=not keep_going))
