"""`kvproof verify`: check one subject with every judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kvproof.check.cli.device import DeviceOption, settled_device
from kvproof.check.cli.options import (
    DEFAULT_FOLDER,
    BudgetOption,
    ContractOption,
    EffortOption,
    IsolationOption,
    JsonOption,
    KnownOption,
    OutOption,
    SeedOption,
    SubjectOption,
    settled_seed,
)
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.extras import reason_missing

if TYPE_CHECKING:
    from kvproof.check.runs.session import Stage


def verify(
    subject: SubjectOption = "kvproof",
    effort: EffortOption = None,
    budget: BudgetOption = None,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    isolation: IsolationOption = None,
    known: KnownOption = None,
    contract_fails: ContractOption = False,
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Check one subject with every judge; use this command as the gate of a CI pipeline.

    It proves the specification for all sizes, searches the specification and the subject exhaustively in small
    scopes, runs the subject at random, and drives it with Hypothesis (managers only; a scheduler only runs at random).
    For built-in subjects it also checks the bytes that the engine moves and the text that it generates. For other
    managers that swap or fork, it moves the blocks of the mappings that they emit. A judge that needs an extra of
    kvproof which is not installed is left out, and the report says so.
    """
    with error_boundary(json):
        from kvproof.check.oracle.level import MANAGER
        from kvproof.check.runs.arguments import factory_of
        from kvproof.check.runs.data_plane_stage import SUBJECTS, emits, emitted_stages, short_stages, stages_left_out
        from kvproof.check.runs.effort import effort_of
        from kvproof.check.runs.explore_stage import SPECIFICATION_SCOPES, specification_stage, subject_stage
        from kvproof.check.runs.hypothesis_stage import hypothesis_stage
        from kvproof.check.runs.run import RunOptions, run_stages
        from kvproof.check.runs.session import Stage
        from kvproof.check.runs.walk_stage import walker_stage
        from kvproof.check.search.strategies import strategy_of

        chosen_effort = effort_of(effort, budget, subject)
        bytes_stages, plane, environment = list[Stage](), None, dict[str, str]()
        no_bytes = reason_missing("device", "the data plane")
        if subject in SUBJECTS and no_bytes and device == "auto":
            bytes_stages = stages_left_out(no_bytes, is_built_in=True)
        elif subject in SUBJECTS:
            chosen, environment, note = settled_device(device)
            bytes_stages, plane = short_stages(chosen, note)
        elif device != "auto":
            raise UsageError(f"--device {device}: {subject} moves no bytes on a device; leave --device out")
        make, one = factory_of(subject, isolation, budget)
        strategy = strategy_of(one)
        is_manager = strategy.level is MANAGER
        if is_manager and subject not in SUBJECTS:
            if emits(one) and no_bytes:
                bytes_stages = stages_left_out(no_bytes, is_built_in=False)
            else:
                _, environment, _ = settled_device("cpu") if emits(one) else ("", environment, "")
                bytes_stages, plane = emitted_stages(subject, make, one)
        options = RunOptions(
            "verify", subject, settled_seed(seed), budget, out, json, known, contract_fails, chosen_effort
        )
        saving = options.saving(make)
        # An unfinished exhaustive search says little: its share is large, and what it leaves over goes to the walker.
        stages = [
            _prover(share=120),
            specification_stage(SPECIFICATION_SCOPES, share=40, is_whole=True),
            *(
                [
                    subject_stage(
                        make, one, strategy.exhaustive.gate, saving, 30, max_transitions=chosen_effort.transitions
                    )
                ]
                if strategy.can_explore
                else []
            ),
            *bytes_stages,
            walker_stage(make, one, saving, 20 if is_manager else 60, chosen_effort.operations),
            *([hypothesis_stage(make, one, saving, 10, chosen_effort)] if is_manager else []),
        ]
        raise typer.Exit(run_stages(options, stages, one, data_plane=plane, environment=environment))


def _prover(share: float) -> Stage:
    """The stage of the prover; without a solver it is left out."""
    from kvproof.check.runs.session import left_out
    from kvproof.reports.result import Check
    from kvproof.spec.text.properties import MEANINGS
    from kvproof.spec.verdict import Verdict

    if reason := reason_missing("prove", "the prover"):
        return left_out(
            "prover", [Check(f"prover/{name}", "prover", name, Verdict.UNKNOWN) for name in MEANINGS], reason
        )
    from kvproof.check.runs.proof_stage import prover_stage

    return prover_stage(share)
