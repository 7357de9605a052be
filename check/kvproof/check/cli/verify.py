"""`kvproof verify`: check one subject with every judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kvproof.check.cli.config import options_to_repeat, place_in
from kvproof.check.cli.device import DeviceOption, settled_device
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
    OutOption,
    RequireOption,
    SeedOption,
    SubjectOption,
    WorkersOption,
    settled_seed,
)
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.extras import reason_missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvproof.check.oracle.level import Level
    from kvproof.check.oracle.replay import Counterexample
    from kvproof.check.protocol.manager import ManagerSubject
    from kvproof.check.runs.session import Stage
    from kvproof.reports.data_plane_result import DataPlane


def verify(
    context: typer.Context,
    subject: SubjectOption = "kvproof",
    effort: EffortOption = None,
    budget: BudgetOption = None,
    judges: JudgesOption = None,
    require: RequireOption = None,
    seed: SeedOption = None,
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

    It searches the subject exhaustively in small scopes, runs it at random, and drives it with Hypothesis (managers
    only; a scheduler only runs at random). For kvproof's own subjects it also proves the specification for all sizes
    and searches it; for any other subject the report says in which release that was done.
    For built-in subjects it also checks the bytes that the engine moves and the text that it generates. For other
    managers that swap or fork, it moves the blocks of the mappings that they emit. A judge that needs an extra of
    kvproof which is not installed is left out, and the report says so; with --require it is a failure.
    """
    with error_boundary(json, place_in(context)):
        from kvproof.check.hosts.choice import opened
        from kvproof.check.hunting.explore_stage import specification_stage_of, subject_stage
        from kvproof.check.hunting.findings import saving_of
        from kvproof.check.hunting.head import Head, here
        from kvproof.check.hunting.hypothesis_stage import hypothesis_stage
        from kvproof.check.hunting.scope_unit import ScopeUnits
        from kvproof.check.hunting.unit import Judged
        from kvproof.check.hunting.walk_stage import walker_stage
        from kvproof.check.oracle.level import MANAGER
        from kvproof.check.runs.arguments import factory_of
        from kvproof.check.runs.data_plane_stage import SUBJECTS
        from kvproof.check.runs.effort import effort_of
        from kvproof.check.runs.history import require_recordable
        from kvproof.check.runs.judges import DATA_PLANE, EXPLORER, HYPOTHESIS, PROVER, SPECIFICATION, settled_judges
        from kvproof.check.runs.run import RunOptions, run_stages
        from kvproof.check.search.strategies import strategy_of
        from kvproof.check.subjects.loading.shipping import SHIPPING

        require_recordable(history)
        chosen_effort = effort_of(effort, budget, subject)
        if device != "auto" and subject not in SUBJECTS:
            raise UsageError(f"--device {device}: {subject} moves no bytes on a device; leave --device out")
        make, one = factory_of(subject, isolation, budget)
        strategy = strategy_of(one)
        chosen = settled_judges(judges or [], subject, strategy, subject in SUBJECTS, require or [])
        options = RunOptions(
            "verify", subject, settled_seed(seed), budget, out, json, known, contract_fails, chosen_effort
        )
        options.assumptions, options.messages, options.baseline = chosen.assumptions, chosen.messages, baseline
        options.history, options.words = history, options_to_repeat(context)
        options.required = chosen.required
        judged = Judged(subject, isolation, budget)
        saving = saving_of(options, make, judged)
        bytes_stages: list[Stage] = []
        plane, environment = None, dict[str, str]()
        if chosen.has(DATA_PLANE):
            bytes_stages, plane, environment = _bytes_stages(subject, device, make, one, saving.is_excused)
        # An unfinished exhaustive search says little: its share is large, and what it leaves over goes to the walker.
        stages = []
        if chosen.has(PROVER):
            stages.append(_prover(strategy.level, share=120))
        if chosen.has(SPECIFICATION):
            stages.append(specification_stage_of(strategy.level, share=40))
        with opened(workers, SHIPPING) as pool:
            head, scope_units = here(make), None
            if pool is not None:
                head, scope_units = Head(pool), ScopeUnits(pool, judged)
                environment["workers"] = pool.name
            if chosen.has(EXPLORER):
                scopes, most = strategy.exhaustive.gate, chosen_effort.transitions
                stages.append(
                    subject_stage(make, one, scopes, saving, share=30, max_transitions=most, units=scope_units)
                )
            stages += bytes_stages
            if chosen.has(strategy.judge):
                share, most = 20 if strategy.level is MANAGER else 60, chosen_effort.operations
                stages.append(walker_stage(make, one, saving, share, most, head=head))
            if chosen.has(HYPOTHESIS):
                stages.append(hypothesis_stage(make, one, saving, 10, chosen_effort))
            raise typer.Exit(run_stages(options, stages, one, data_plane=plane, environment=environment))


def _bytes_stages(
    subject: str,
    device: str,
    make: Callable[[], ManagerSubject],
    one: ManagerSubject,
    is_excused: Callable[[Counterexample], bool],
) -> tuple[list[Stage], DataPlane | None, dict[str, str]]:
    """The stages of the data plane, the part of the result that they fill, and facts of the machine.

    is_excused: whether a finding is excused. Without the packages that they need, they are left out.
    """
    from kvproof.check.runs.data_plane_stage import (
        SUBJECTS,
        EmittingManager,
        emits,
        emitted_stages,
        short_stages,
        stages_left_out,
    )

    no_bytes, is_built_in = reason_missing("device", "the data plane"), subject in SUBJECTS
    if no_bytes and device == "auto" and (is_built_in or emits(one)):
        return stages_left_out(no_bytes, is_built_in), None, {}
    if is_built_in:
        chosen, environment, note = settled_device(device)
        return *short_stages(chosen, note), environment
    _, environment, _ = settled_device("cpu") if emits(one) else ("", {}, "")
    return *emitted_stages(EmittingManager(subject, make, is_excused), one), environment


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
