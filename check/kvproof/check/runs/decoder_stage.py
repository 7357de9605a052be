"""The stage that generates text through paged memory and compares it with the model without pages.

An event that a workload exists for and that did not happen, or a planted fault that was not caught, is a missing
witness.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

from kvproof.check.runs.data_plane_stage import JUDGE, SECONDS_MIN, DataPlaneOptions, out_of_time
from kvproof.check.runs.session import NOT_RUN, Stage, StageBudget, StageOutput
from kvproof.reports.result import Check, WitnessCount
from kvproof.spec.verdict import Verdict

GENERATOR, READS = "paged decoder", "read-back"


def generating_stage(options: DataPlaneOptions, share: float) -> Stage:
    """Generate text through paged memory, and compare it with the text of the same decoder without pages."""
    planned_checks = [Check(f"{JUDGE}/{READS}/{GENERATOR}", JUDGE, READS, Verdict.UNKNOWN, text=NOT_RUN)]

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        if budget.seconds < SECONDS_MIN:
            yield from out_of_time(planned_checks)
            return
        if options.broken:
            yield replace(planned_checks[0], text=f"an executor broke the device: {options.broken[0]}")
            return
        from kvproof.check.data_plane.end_to_end.comparing import run_end_to_end
        from kvproof.check.data_plane.end_to_end.workloads import WORKLOADS
        from kvproof.check.data_plane.run.reporting import add_end_to_end

        began, done = time.monotonic(), 0

        def advance(what: str) -> None:
            nonlocal done
            done += 1
            budget.advance(done)

        found = run_end_to_end(budget.seed, options.device, on_progress=advance)
        add_end_to_end(options.plane, found)
        wrong = [
            f"workload {workload.name}: {workload.reason}" for workload in found.workloads if not workload.is_right
        ]
        yield replace(
            planned_checks[0],
            verdict=Verdict.REFUTED if wrong else Verdict.NOT_REFUTED,
            seconds=round(time.monotonic() - began, 3),
            counts={
                "workloads": len(found.workloads),
                "sequences": sum(workload.num_sequences for workload in found.workloads),
                "tokens": sum(workload.num_tokens for workload in found.workloads),
            },
            text="; ".join(wrong),
        )
        for workload in found.workloads:
            for name in WORKLOADS[workload.name].expected:
                yield WitnessCount(f"{workload.name}: {name}", GENERATOR, workload.witness_counts.get(name, 0))
        yield WitnessCount("planted faults caught", GENERATOR, found.num_caught)
        for fault in found.faults:
            if not fault.is_caught:
                yield WitnessCount(f"planted: {fault.name}", GENERATOR, 0)

    return Stage(GENERATOR, share, planned_checks, run)
