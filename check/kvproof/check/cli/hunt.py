"""`kvproof hunt`: search for counterexamples of one subject."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    OutOption,
    SeedOption,
    TrustOption,
    WorkersOption,
    settled_seed,
)
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.verdict import Exit

if TYPE_CHECKING:
    from collections.abc import Collection

    from kvproof.check.protocol.manager import ManagerSubject

RESUME = "kvproof hunt --resume {file} --subject {subject}"
EXPLORER_SHARE, EXPLORER_SECONDS_MAX = 15.0, 15.0  # percent of the budget; the walker gets the rest


def hunt(
    context: typer.Context,
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="S", help="A name of `kvproof subjects`, or module:factory of your own."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="LEVEL",
            help="A level of `kvproof subjects`, such as scheduler (or loop): fail unless the subject has this level.",
        ),
    ] = None,
    effort: EffortOption = None,
    budget: BudgetOption = None,
    seed: SeedOption = None,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going/--stop-at-first",
            help="Go on until the effort is spent and report one finding of each kind, or stop at the first finding.",
        ),
    ] = True,
    wanted: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="ID",
            help="Search for this property; other findings are reported but are no failure. Repeatable.",
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="NAME=VALUE",
            help="Fix a field of the configuration in every run, for example caching=false. Repeatable.",
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="DIR", help="Continue the hunt whose --out folder this is.")
    ] = None,
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
    with error_boundary(json, place_in(context)), ExitStack() as ending:
        from kvproof.check.hosts.choice import opened
        from kvproof.check.hunting.explore_stage import subject_stage
        from kvproof.check.hunting.findings import saving_of
        from kvproof.check.hunting.resume import Bookmark, HuntProgress, resumed
        from kvproof.check.hunting.scope_unit import ScopeUnits
        from kvproof.check.hunting.unit import Judged, WalkUnits, make_ready
        from kvproof.check.hunting.walk_stage import walker_stage
        from kvproof.check.oracle.level import level_named, level_of
        from kvproof.check.runs.arguments import agrees, factory_of, fixed_fields, require_fields_of, wanted_properties
        from kvproof.check.runs.effort import effort_of
        from kvproof.check.runs.history import require_recordable
        from kvproof.check.runs.run import RunOptions, run_stages
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.runs.trust import trust
        from kvproof.check.search.strategies import strategy_of
        from kvproof.check.subjects.loading.shipping import SHIPPING

        require_recordable(history)
        if resume is not None:  # the configuration is about new hunts
            subject, seed, fix = (
                typed(context, name, value) for name, value in (("subject", subject), ("seed", seed), ("fix", fix))
            )
        if resume is not None and (fix or wanted):
            option = "--fix" if fix else "--property"
            raise UsageError(f"--resume continues with the options of the first hunt; leave {option} out")
        if resume is not None and workers is not None:
            raise UsageError("a hunt is resumed without --workers; `kvproof campaign` resumes with any workers")
        if resume is not None:
            bookmark = resumed(resume, subject, seed, trust(is_total=is_trusted, command=RESUME))
        elif subject is None:
            raise UsageError("no subject is given: name one with --subject, or continue a hunt with --resume DIR")
        else:
            kept = fixed_fields(fix or []), wanted_properties(wanted or [])
            bookmark = Bookmark(out, HuntProgress(subject, settled_seed(seed), *kept))
        progress = bookmark.progress
        chosen_effort = effort_of(effort, budget, progress.subject)
        pool, judged = ending.enter_context(opened(workers, SHIPPING)), Judged(progress.subject, isolation, budget)
        if pool is not None:
            pool.prepare(make_ready, judged)
        make, one = factory_of(progress.subject, isolation, budget)
        try:
            if level is not None and (named := level_named(level)) is not (actual := level_of(one)):
                raise UsageError(f"{progress.subject} is of level {actual.name}, not {named.name}; leave --level out")
        except ValueError as error:
            raise UsageError(str(error)) from error
        require_fields_of(level_of(one).config, progress.fixed)
        impossible = _impossible(one, progress.properties, progress.fixed)
        options = RunOptions(
            "hunt", progress.subject, progress.seed, budget, bookmark.folder, json, known, contract_fails, chosen_effort
        )
        options.baseline, options.history, options.words = baseline, history, options_to_repeat(context)
        options.messages = tuple(f"--property {name}: {reason}" for name, reason in impossible.items())
        saving = saving_of(options, make)
        saving.wanted = frozenset(progress.properties)
        bookmark.remind(saving)
        stages = [bookmark.stage()] if bookmark.earlier else []
        scopes = {}
        if (strategy := strategy_of(one)).can_explore:
            scopes = {
                name: scope
                for name, scope in strategy.exhaustive.hunted.items()
                if name not in progress.scopes and agrees(strategy.exhaustive.config_of(scope), progress.fixed)
            }
        for name, reason in strategy.level.excluded_witnesses(progress.fixed).items():
            say(output(), f"not expected with these fixed fields: {name} ({reason})")
        own: Bookmark | None = bookmark
        facts, walk_units, scope_units = dict[str, str](), None, None
        is_done = bookmark.scope_is_done
        if pool is not None:  # a walk in units is not resumed
            walk_units, scope_units = WalkUnits(pool, judged), ScopeUnits(pool, judged)
            own, facts, is_done = None, {"workers": pool.name}, lambda name: None
        if strategy.can_explore:
            share = EXPLORER_SHARE if budget is None else min(EXPLORER_SHARE, 100 * EXPLORER_SECONDS_MAX / budget)
            most = chosen_effort.hunted_transitions
            stages.append(subject_stage(make, one, scopes, saving, share, True, keep_going, is_done, most, scope_units))
        share = 100.0 - sum(stage.share for stage in stages)
        most, fixed = chosen_effort.operations, progress.fixed
        walker = walker_stage(make, one, saving, share, most, keep_going, own, fixed, walk_units)
        is_beside = scope_units is not None and scope_units.is_beside_the_walk(not keep_going)
        stages.insert(0 if is_beside else len(stages), walker)
        is_short = not keep_going and resume is None
        raise typer.Exit(run_stages(options, stages, one, stops_at_first=is_short, environment=facts))


def _impossible(subject: "ManagerSubject", wanted: "Collection[str]", fixed: dict[str, Any]) -> dict[str, str]:
    """The wanted properties that no hunt of this subject can refute, each with the reason.

    Exits with 5 if there is no other: the hunt would find nothing, whatever is wrong.
    """
    from kvproof.check.runs.arguments import Narrowed
    from kvproof.check.runs.errors import fail
    from kvproof.check.runs.verdicts import planned_checks
    from kvproof.check.search.strategies import strategy_of

    strategy = strategy_of(subject)
    checks = planned_checks(strategy.level, strategy.judge, Narrowed(subject, fixed) if fixed else subject)
    reasons = {check.property: check.text for check in checks if not check.is_decided}
    found = {name: reasons[name] for name in wanted if name in reasons}
    if found and len(found) == len(wanted):
        what = "; ".join(f"{name}: {reason}" for name, reason in found.items())
        raise fail(f"nothing of what is asked for can be checked: {what}", Exit.NOTHING_CHECKED)
    return found
