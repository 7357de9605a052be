"""The decoder in paged memory as a stage: a storm or a fault that was not met is a witness that is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from kvproof.check.runs.data_plane_stage import JUDGE, SECONDS_MIN, Moving, out_of_time
from kvproof.check.runs.session import NOT_RUN, Stage, StageBudget, StageOutput
from kvproof.reports.result import Check, WitnessCount
from kvproof.spec.verdict import Verdict

GENERATOR, READS = "paged decoder", "read-back"


def generating_stage(moving: Moving, share: float) -> Stage:
    """A decoder generates through paged memory, and says what it says without."""
    planned_checks = [Check(f"{JUDGE}/{READS}/{GENERATOR}", JUDGE, READS, Verdict.UNKNOWN, text=NOT_RUN)]

    def run(stint: StageBudget) -> Iterator[StageOutput]:
        if stint.seconds < SECONDS_MIN:
            yield from out_of_time(planned_checks)
            return
        if moving.broken:
            yield replace(planned_checks[0], text=f"an executor broke the device before: {moving.broken[0]}")
            return
        from kvproof.check.data_plane.end_to_end.comparing import run_end_to_end
        from kvproof.check.data_plane.end_to_end.workloads import STORMS
        from kvproof.check.data_plane.run.reporting import add_end_to_end

        began, done = time.monotonic(), 0

        def advance(what: str) -> None:
            nonlocal done
            done += 1
            stint.advance(done)

        found = run_end_to_end(stint.seed, moving.device, on_progress=advance)
        add_end_to_end(moving.plane, found)
        wrong = [f"storm {storm.name}: {storm.reason}" for storm in found.storms if not storm.is_right]
        yield replace(
            planned_checks[0],
            verdict=Verdict.REFUTED if wrong else Verdict.NOT_REFUTED,
            seconds=round(time.monotonic() - began, 3),
            counts={
                "storms": len(found.storms),
                "sequences": sum(storm.num_sequences for storm in found.storms),
                "tokens": sum(storm.num_tokens for storm in found.storms),
            },
            text="; ".join(wrong),
        )
        for storm in found.storms:
            for name in STORMS[storm.name].expected:
                yield WitnessCount(f"{storm.name}: {name}", GENERATOR, storm.met.get(name, 0))
        yield WitnessCount("planted faults caught", GENERATOR, found.num_caught)
        for fault in found.faults:
            if not fault.is_caught:
                yield WitnessCount(f"planted: {fault.name}", GENERATOR, 0)

    return Stage(GENERATOR, share, planned_checks, run)
