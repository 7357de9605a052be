"""`kvproof verify`: check one subject with every judge."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, NamedTuple

import typer

from kvproof.check.cli.config import options_to_repeat, place_in, typed
from kvproof.check.cli.device import DeviceOption, require_known_device, settled_device
from kvproof.check.cli.options import (
    DEFAULT_FOLDER,
    BaselineOption,
    BudgetOption,
    ContractOption,
    EffortOption,
    HistoryOption,
    IsolationOption,
    JsonOption,
    JudgesOption,
    KnownOption,
    LikeOption,
    OutOption,
    RequireOption,
    ResumeOption,
    SeedOption,
    SubjectOption,
    WorkersOption,
    of_checkout,
    settled_seed,
)
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.extras import reason_missing

if TYPE_CHECKING:
    from pathlib import Path

    from kvproof.check.hunting.findings import Saving
    from kvproof.check.hunting.head import Head
    from kvproof.check.hunting.resume import VerifyPlan
    from kvproof.check.hunting.scope_unit import ScopeUnits
    from kvproof.check.hunting.store import ResultStore
    from kvproof.check.hunting.unit import Walk
    from kvproof.check.oracle.level import Level
    from kvproof.check.protocol.manager import ManagerSubject
    from kvproof.check.runs.data_plane_stage import EmittingManager
    from kvproof.check.runs.effort import Effort
    from kvproof.check.runs.judges import Judges
    from kvproof.check.runs.run import RunOptions
    from kvproof.check.runs.session import Stage
    from kvproof.check.runs.store import Store
    from kvproof.reports.data_plane_result import DataPlane


def verify(
    context: typer.Context,
    subject: SubjectOption = "kvproof",
    like: LikeOption = None,
    effort: EffortOption = None,
    budget: BudgetOption = None,
    judges: JudgesOption = None,
    require: RequireOption = None,
    seed: SeedOption = None,
    resume: ResumeOption = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    isolation: IsolationOption = None,
    known: KnownOption = None,
    contract_fails: ContractOption = False,
    baseline: BaselineOption = None,
    history: HistoryOption = None,
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Check one subject with every judge; use this command as the gate of a CI pipeline.

    It searches the subject exhaustively in small scopes (a scheduler has none), runs it at random, and drives it with
    Hypothesis. For kvproof's own subjects it also proves the specification for all sizes and searches it; for any other
    subject the report says in which release that was done. The folder keeps what the searches have done, so that
    --resume continues a run that was stopped.
    For built-in subjects it also checks the bytes that the engine moves and the text that it generates. For other
    managers that swap or fork, it moves the blocks of the mappings that they emit. A judge that needs an extra of
    kvproof which is not installed is left out, and the report says so; with --require it is a failure.
    """
    with error_boundary(json, place_in(context)), ExitStack() as ending:
        from kvproof.check.hosts.choice import opened
        from kvproof.check.hunting.findings import saving_of
        from kvproof.check.hunting.head import Head, here
        from kvproof.check.hunting.moved import moved_in
        from kvproof.check.hunting.scope_unit import ScopeUnits
        from kvproof.check.runs.arguments import factory_of
        from kvproof.check.runs.data_plane_stage import SUBJECTS, EmittingManager
        from kvproof.check.runs.judges import settled_judges
        from kvproof.check.runs.run import run_stages
        from kvproof.check.search.strategies import strategy_of
        from kvproof.check.subjects.loading.shipping import SHIPPING

        plan, results, options = _begin(context, resume, out, ending)
        subject = plan.subject
        if device != "auto" and subject not in SUBJECTS:
            raise UsageError(f"--device {device}: {subject} moves no bytes on a device; leave --device out")
        make, one = factory_of(subject, isolation, budget)
        chosen = settled_judges(plan.judges, subject, strategy_of(one), subject in SUBJECTS, plan.required)
        options.assumptions, options.messages, options.required = chosen.assumptions, chosen.messages, chosen.required
        saving = saving_of(options, make, isolation)
        walk, pool = saving.walk(options.effort.operations), ending.enter_context(opened(workers, SHIPPING))
        saving.results = _claimed(options, plan, results, ending)
        head = here(make, saving.results) if pool is None else Head(pool, store=saving.results)
        moving = _bytes_stages(chosen, device, one, EmittingManager(subject, moved_in(walk, saving, head)))
        facts = moving.environment | ({} if pool is None else {"workers": pool.name})
        units = None if pool is None else ScopeUnits(pool, saving.judged)
        stages = _stages(chosen, saving, one, options.effort, moving.stages, walk, head, units)
        raise typer.Exit(run_stages(options, stages, one, data_plane=moving.plane, environment=facts))


def _begin(
    context: typer.Context, resume: Path | None, out: Path, ending: ExitStack
) -> tuple[VerifyPlan, ResultStore | None, RunOptions]:
    """What the run does, and the results of the one that it continues."""
    from kvproof.check.runs.store import Store

    store = Store(resume or out)
    plan, results = _planned(context) if resume is None else _resumed(context, store, ending)
    return plan, results, _run_options(context, plan, store)


def _planned(context: typer.Context) -> tuple[VerifyPlan, None]:
    """What a new run does."""
    from kvproof.check.hunting.resume import VerifyPlan
    from kvproof.check.runs.effort import effort_of

    given = context.params
    subject = of_checkout(given["subject"], given["like"]) or given["subject"]
    effort, words = effort_of(given["effort"], given["budget"], subject).name, options_to_repeat(context)
    judges, required = given["judges"] or [], given["require"] or []
    return VerifyPlan(subject, settled_seed(given["seed"]), effort, words, judges, required), None


def _resumed(context: typer.Context, store: Store, ending: ExitStack) -> tuple[VerifyPlan, ResultStore]:
    """The plan of the run in this folder, and its results. The configuration is about new runs."""
    from kvproof.check.hunting.resume import VerifyPlan, continued

    given = {name: typed(context, name, value) for name, value in context.params.items()}
    for name in ("judges", "require"):
        if given[name]:
            raise UsageError(f"--resume continues with the options of the first run; leave --{name} out")
    subject = of_checkout(given["subject"], given["like"])
    results, plan = continued(store, VerifyPlan, subject, given["seed"], given["effort"], context.params["budget"])
    ending.enter_context(closing(results))
    return plan, results


def _run_options(context: typer.Context, plan: VerifyPlan, store: Store) -> RunOptions:
    from kvproof.check.runs.effort import effort_of
    from kvproof.check.runs.history import require_recordable
    from kvproof.check.runs.run import RunOptions

    given = context.params
    require_known_device(given["device"])
    require_recordable(given["history"])
    effort = effort_of(plan.effort or None, given["budget"], plan.subject)
    options = RunOptions(
        "verify", plan.subject, plan.seed, given["budget"], store.folder, given["json"], given["known"]
    )
    options.store = store
    options.contract_fails, options.effort = given["contract_fails"], effort
    options.baseline, options.history = given["baseline"], given["history"]
    options.words = plan.words_with(options_to_repeat(context))
    return options


def _claimed(options: RunOptions, plan: VerifyPlan, results: ResultStore | None, ending: ExitStack) -> ResultStore:
    """The store of the run, whose folder is kept from other runs."""
    from kvproof.check.hunting.resume import begun

    options.store.claim()
    return ending.enter_context(closing(begun(options.folder, plan))) if results is None else results


def _stages(
    chosen: Judges,
    saving: Saving,
    one: ManagerSubject,
    effort: Effort,
    bytes_stages: list[Stage],
    walk: Walk,
    head: Head,
    units: ScopeUnits | None,
) -> list[Stage]:
    """The stages of the judges that were chosen. The data plane moves what the walk before it has moved.

    An unfinished exhaustive search says little: its share is large, and what it leaves over goes to the walker.
    """
    from kvproof.check.hunting.explore_stage import specification_stage_of, subject_stage
    from kvproof.check.hunting.hypothesis_stage import hypothesis_stage
    from kvproof.check.hunting.walk_stage import walker_stage
    from kvproof.check.oracle.level import MANAGER
    from kvproof.check.runs.judges import EXPLORER, HYPOTHESIS, PROVER, SPECIFICATION
    from kvproof.check.search.strategies import strategy_of

    strategy, make = strategy_of(one), saving.make
    stages: list[Stage] = []
    if chosen.has(PROVER):
        stages.append(_prover(strategy.level, share=120))
    if chosen.has(SPECIFICATION):
        stages.append(specification_stage_of(strategy.level, share=40, saving=saving))
    if chosen.has(EXPLORER):
        scopes, most = strategy.exhaustive.gate, effort.transitions
        stages.append(subject_stage(make, one, scopes, saving, share=30, max_transitions=most, units=units))
    if chosen.has(strategy.judge):
        share = 20 if strategy.level is MANAGER else 60
        stages.append(walker_stage(one, saving, share, walk, head=head))
    stages += bytes_stages
    if chosen.has(HYPOTHESIS):
        stages.append(hypothesis_stage(make, one, saving, 10, effort))
    return stages


class Moving(NamedTuple):
    """The stages of the data plane, the part of the result that they fill, and facts of the machine."""

    stages: list[Stage]
    plane: DataPlane | None
    environment: dict[str, str]


def _bytes_stages(chosen: Judges, device: str, one: ManagerSubject, manager: EmittingManager) -> Moving:
    """What the data plane does, if it was chosen. Without the packages that they need, stages are left out."""
    from kvproof.check.runs.data_plane_stage import (
        SUBJECTS,
        emits,
        emitted_stages,
        short_stages,
        stages_left_out,
    )
    from kvproof.check.runs.judges import DATA_PLANE

    if not chosen.has(DATA_PLANE):
        return Moving([], None, {})
    no_bytes, is_built_in = reason_missing("device", "the data plane"), manager.name in SUBJECTS
    if no_bytes and device == "auto" and (is_built_in or emits(one)):
        return Moving(stages_left_out(no_bytes, is_built_in), None, {})
    if is_built_in:
        name, environment, note = settled_device(device)
        return Moving(*short_stages(name, note), environment)
    _, environment, _ = settled_device("cpu") if emits(one) else ("", {}, "")
    return Moving(*emitted_stages(manager, one), environment)


def _prover(level: Level, share: float) -> Stage:
    """The stage of the prover; without a solver it is left out."""
    from kvproof.check.runs.session import left_out
    from kvproof.reports.result import Check
    from kvproof.spec.text.properties import MEANINGS
    from kvproof.spec.verdict import Verdict

    if reason := reason_missing("prove", "the prover"):
        return left_out(
            "prover", [Check(f"prover/{name}", "prover", name, Verdict.UNKNOWN) for name in MEANINGS], reason
        )
    from kvproof.check.proving.stage import prover_stage

    return prover_stage(share, level)
