"""The harness of the data plane as a stage: bytes are moved and compared.

The mappings are drawn, or those of kvproof's own manager; or, for another manager, those that it emits (`Emitting`).

It has to catch the faults that it plants into its own run. Each of them is a witness: one that was missed makes the run
inconclusive, whatever the executors did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kvproof.check.runs.session import NOT_RUN, Stage, StageBudget, StageOutput
from kvproof.reports.data_plane_result import DataPlane
from kvproof.reports.result import Check, WitnessCount
from kvproof.spec.verdict import Verdict

if TYPE_CHECKING:
    from kvproof.check.data_plane.run.results import CaseResult, CorrectnessResult
    from kvproof.check.data_plane.steps.moves import Moves, Scenario
    from kvproof.check.protocol.manager import ManagerSubject

JUDGE = "data plane"
SWAPS, COPIES, HAZARDS = "swap-mapping", "cow-copied", "mapping-hazard-free"
LINTER, REFUSED = "linter", "REFUSED_MAPPING"
EMITTING_SHARE = 0.3  # of the time, for driving a manager
NO_PAIRS, NO_MANAGER = "no mapping of this run has such pairs", "no mapping of this run came from a manager"
SECONDS_MIN = 0.2  # with less, nothing is begun


@dataclass(frozen=True)
class Emitting:
    """A manager whose mappings are moved."""

    name: str
    make: Callable[[], ManagerSubject]


@dataclass(frozen=True)
class Moving:
    """What of the data plane is run. Empty layouts, dtypes: those the harness takes by itself.

    emitting: the manager whose mappings are moved, and no others; None for those that the harness has. broken: why
    nothing more can be done on the device, once an executor has broken it.
    """

    device: str
    executors: tuple[str, ...]
    layouts: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    is_short: bool = False
    emitting: Emitting | None = None
    broken: list[str] = field(default_factory=list)
    plane: DataPlane = field(default_factory=lambda: DataPlane("cpu"))


def correctness_stage(moving: Moving, share: float) -> Stage:
    """Every executor moves blocks between filled pools, and every byte is compared."""
    planned_checks = [
        Check(f"{JUDGE}/{property}/{name}", JUDGE, property, Verdict.UNKNOWN, text=NOT_RUN)
        for name in moving.executors
        for property in (SWAPS, COPIES)
    ]
    planned_checks.append(Check(f"{JUDGE}/{HAZARDS}/{LINTER}", JUDGE, HAZARDS, Verdict.UNKNOWN, text=NOT_RUN))

    def run(stint: StageBudget) -> Iterator[StageOutput]:
        if stint.seconds < SECONDS_MIN:
            yield from out_of_time(planned_checks)
            return
        from kvproof.check.data_plane.run.correctness import CorrectnessConfig, run_correctness
        from kvproof.check.data_plane.run.reporting import add_cases, add_correctness

        began = time.monotonic()
        given = _given(moving.emitting, stint) if moving.emitting else None
        if given and not given.steps:
            text = f"in the time that there was, {given.kind.removeprefix('of ')} emitted nothing that would be moved"
            yield from (replace(check, text=text) for check in planned_checks)
            return
        config = CorrectnessConfig(
            stint.seed,
            moving.device,
            moving.executors,
            moving.layouts,
            moving.dtypes,
            is_short=moving.is_short,
            given=given,
            seconds_max=stint.seconds - (time.monotonic() - began),
        )
        cases: list[CaseResult] = []
        try:
            found = run_correctness(config, lambda what, done, total: stint.advance(done), cases.append)
        except KeyboardInterrupt:  # what was refuted stays so; the rest stays open
            add_cases(moving.plane, cases)
            yield from (
                check for check in _all_decided(planned_checks, cases, given) if check.verdict is Verdict.REFUTED
            )
            raise
        add_correctness(moving.plane, found)
        moving.broken.extend(filter(None, [found.broken]))
        decided = _all_decided(planned_checks, found.cases, given)
        yield from map(_left_open, decided) if found.is_cut else decided
        yield from _self_test(found)

    return Stage(JUDGE, share, planned_checks, run)


def out_of_time(planned_checks: Sequence[Check]) -> Iterator[Check]:
    """What a stage says that is given less time than it takes at least."""
    return (replace(check, text="no time was left") for check in planned_checks)


def _given(emitting: Emitting, stint: StageBudget) -> Scenario:
    """What the manager emits."""
    from kvproof.check.data_plane.run.correctness import SMALL
    from kvproof.check.runs.emitted_mappings import emitted

    sizes = SMALL.num_gpu_blocks, SMALL.num_cpu_blocks, SMALL.block_size
    return emitted(emitting.name, emitting.make, stint.seed, *sizes, stint.seconds * EMITTING_SHARE)


def _all_decided(
    planned_checks: Sequence[Check], cases: Sequence[CaseResult], given: Scenario | None
) -> Iterator[Check]:
    for check in planned_checks:
        if check.property == HAZARDS:
            yield _linted(check, cases)
        else:
            executor = check.id.split("/", 2)[2]
            yield _decided(check, [case for case in cases if case.executor == executor], given)


def _decided(check: Check, cases: Sequence[CaseResult], given: Scenario | None) -> Check:
    """The verdict on one property of one executor."""
    mine = [case for case in cases if check.property in _exercised(case, given)]
    run = [case for case in mine if not case.reason]
    failed = [case for case in cases if _broken(case, given) == check.property]
    passed = [case for case in run if case.finding is None]
    counts = {
        "cases": len(run),
        "pairs": sum(case.num_pairs for case in run),
        "bytes compared": sum(case.bytes_proven for case in run),
    }
    seconds = round(sum(case.seconds for case in run), 3)
    if failed:
        text = _refutation(failed)
        return replace(check, verdict=Verdict.REFUTED, seconds=seconds, counts=counts, text=text)
    if passed:
        return replace(check, verdict=Verdict.NOT_REFUTED, seconds=seconds, counts=counts, text="")
    if run:
        text = "every case with such a mapping ended at another finding"
        return replace(check, verdict=Verdict.UNKNOWN, seconds=seconds, counts=counts, text=text)
    reasons = dict.fromkeys(case.reason for case in cases if case.reason)
    text = "; ".join(reasons) or NO_PAIRS
    return replace(check, verdict=Verdict.UNSUPPORTED, text=text)


def _left_open(check: Check) -> Check:
    """In a run that was cut short, what no case spoke of is open, unless no case could."""
    if check.verdict is Verdict.UNSUPPORTED and check.text in (NO_PAIRS, NO_MANAGER):
        return replace(check, verdict=Verdict.UNKNOWN, text="the time was over before any case of it was run")
    return check


def _linted(check: Check, cases: Sequence[CaseResult]) -> Check:
    """The verdict on the mappings that kvproof's own scheduler and manager gave; the others were drawn to be right."""
    from kvproof.check.data_plane.mappings import ADVERSARIAL

    refused = [case for case in cases if case.finding is not None and case.finding.kind.name == REFUSED]
    theirs = {case.mapping: case for case in cases if case.mapping not in ADVERSARIAL and not case.reason}
    if refused:
        return replace(check, verdict=Verdict.REFUTED, text=_refutation(refused))
    if not theirs:
        return replace(check, verdict=Verdict.UNSUPPORTED, text=NO_MANAGER)
    pairs = sum(case.num_pairs for case in theirs.values())
    return replace(check, verdict=Verdict.NOT_REFUTED, counts={"mappings linted": len(theirs), "pairs": pairs}, text="")


def _exercised(case: CaseResult, given: Scenario | None) -> set[str]:
    """The properties that a case speaks of."""
    return {name for moves in _moves_of(case, given)[0] for name in _spoken_of(moves)}


def _spoken_of(moves: Moves) -> set[str]:
    return ({SWAPS} if moves.swap_in or moves.swap_out else set()) | ({COPIES} if moves.copy else set())


def _moves_of(case: CaseResult, given: Scenario | None) -> list[list[Moves]]:
    """The steps of its mapping, at each size that cases have."""
    return [[step.moves for step in given.steps]] if given else _moves_of_kind(case.mapping, case.seed)


@lru_cache
def _moves_of_kind(kind: str, seed: int) -> list[list[Moves]]:
    from kvproof.check.data_plane.mappings import scenario
    from kvproof.check.data_plane.run.correctness import LARGE, SMALL

    return [
        [step.moves for step in scenario(kind, seed, size.num_gpu_blocks, size.num_cpu_blocks, size.block_size).steps]
        for size in (SMALL, LARGE)
    ]


def _broken(case: CaseResult, given: Scenario | None) -> str:
    """The property that a case's finding refutes; empty if nothing was found.

    Swaps come first in a step, and a copy spreads what they did wrong: so a wrong block that was swapped speaks first.
    """
    finding = case.finding
    if finding is None:
        return ""
    if finding.kind.name == REFUSED:
        return HAZARDS
    for steps in _moves_of(case, given):
        done = steps[: finding.step]
        if finding.wrong and sum(moves.num_pairs for moves in done) == case.num_pairs:
            swapped_in = {target for _, target in done[-1].swap_in}
            if any(row.pool == 1 or row.block in swapped_in for row in finding.wrong):
                return SWAPS
            if done[-1].copy:
                return COPIES
    return SWAPS if SWAPS in _exercised(case, given) else COPIES


def _refutation(failed: Sequence[CaseResult]) -> str:
    """The first finding whole, and in how many cases there were findings."""
    first = failed[0]
    assert first.finding is not None
    where = f"{first.executor}, {first.layout}, {first.dtype}, mapping {first.mapping}, seed {first.seed}"
    num_others = len(failed) - 1
    others = f"; {num_others} further {'case fails' if num_others == 1 else 'cases fail'}" if num_others else ""
    return f"{where}: {first.finding.text}{others}"


def _self_test(found: CorrectnessResult) -> Iterator[WitnessCount]:
    """How many of the faults, races and bad mappings were judged rightly, and each that was not."""
    num_planted = len(found.faults) + len(found.races) + len(found.lints)
    yield WitnessCount("planted faults caught", JUDGE, num_planted - len(found.missed))
    for name in found.missed:
        yield WitnessCount(f"planted: {name}", JUDGE, 0)
