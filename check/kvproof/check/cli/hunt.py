"""`kvproof hunt`: search for counterexamples of one subject."""

from typing import Annotated

import typer

from kvproof.check.cli.config import options_to_repeat, place_in, typed
from kvproof.check.cli.options import (
    DEFAULT_FOLDER,
    BaselineOption,
    BudgetOption,
    ContractOption,
    EffortOption,
    HistoryOption,
    IsolationOption,
    JsonOption,
    KnownOption,
    LikeOption,
    OutOption,
    ResumeOption,
    SeedOption,
    TrustOption,
    WorkersOption,
    of_checkout,
    settled_seed,
)
from kvproof.check.runs.errors import error_boundary

HuntedOption = Annotated[
    str | None,
    typer.Option("--subject", metavar="S", help="A name of `kvproof subjects`, or module:factory of your own."),
]
LevelOption = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="LEVEL",
        help="A level of `kvproof subjects`, such as scheduler (or loop): fail unless the subject has this level.",
    ),
]
KeepGoingOption = Annotated[
    bool,
    typer.Option(
        "--keep-going/--stop-at-first",
        help="Go on until the effort is spent and report one finding of each kind, or stop at the first finding.",
    ),
]
WantedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="ID",
        help="Search for this property; other findings are reported but are no failure. Repeatable.",
    ),
]
FixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fix",
        metavar="NAME=VALUE",
        help="Fix a field of the configuration in every run, for example caching=false. Repeatable.",
    ),
]


def hunt(
    context: typer.Context,
    subject: HuntedOption = None,
    like: LikeOption = None,
    level: LevelOption = None,
    effort: EffortOption = None,
    budget: BudgetOption = None,
    seed: SeedOption = None,
    keep_going: KeepGoingOption = True,
    wanted: WantedOption = None,
    fix: FixOption = None,
    resume: ResumeOption = None,
    workers: WorkersOption = None,
    is_trusted: TrustOption = False,
    isolation: IsolationOption = None,
    known: KnownOption = None,
    contract_fails: ContractOption = False,
    baseline: BaselineOption = None,
    history: HistoryOption = None,
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Search for counterexamples of one subject: small scopes exhaustively, then random walks.

    The hunt goes on after a finding. Findings are grouped by property and mechanism; one of each group is minimised,
    saved and reported at once, and later runs leave out the features that it needs.
    """
    with error_boundary(json, place_in(context)):
        from kvproof.check.hunting.hunt import HuntOptions
        from kvproof.check.hunting.hunt import hunt as run

        if resume is not None:  # the configuration is about new hunts
            given = {"subject": subject, "seed": seed, "effort": effort, "fix": fix}
            subject, seed, effort, fix = (typed(context, name, value) for name, value in given.items())
        options = HuntOptions(
            subject=of_checkout(subject, like),
            seed=settled_seed(seed) if resume is None else seed,
            level=level,
            effort=effort,
            budget=budget,
            keeps_going=keep_going,
            wanted=wanted or [],
            fix=fix or [],
            resume=resume,
            workers=workers,
            is_trusted=is_trusted,
            isolation=isolation,
            known=known,
            contract_fails=contract_fails,
            baseline=baseline,
            history=history,
            out=out,
            json=json,
            words=options_to_repeat(context),
        )
        raise typer.Exit(run(options))
