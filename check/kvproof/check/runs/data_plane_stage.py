"""The stages of the data plane: they move bytes and compare them, and generate text through paged memory.

The mappings are drawn, or emitted by kvproof's own manager. To judge another manager, the stage moves the mappings that
this manager emitted in its random walk (`EmittingManager`).

The harness must catch the faults that it plants into its own run. Each planted fault is a witness: if one is missed,
the run is inconclusive, whatever the executors did. So is an event that a workload exists for.

`kvproof verify` runs a short form of `kvproof device`, without speeds. The built-in subjects have a complete data
plane: their engine moves bytes, and their scheduler and manager generate text. For any other manager that swaps or
forks, the mappings that it emits are linted, and kvproof's engine moves bytes by them, in main memory. This shows that
a worker can execute the mappings and that every byte is then where they say. It does not show what the manager's own
engine would do with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kvproof.check.hosts.interrupt import uninterrupted
from kvproof.check.oracle.coverage import FORK, SWAP, Facts
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.runs.session import NOT_RUN, Stage, StageBudget, StageOutput, left_out
from kvproof.check.runs.verdicts import NO_TIME
from kvproof.check.search.result import MovedLists
from kvproof.reports.data_plane_result import DataPlane
from kvproof.reports.evidence import FailedCase, refuted
from kvproof.reports.result import Check, WitnessCount
from kvproof.spec.verdict import Verdict

if TYPE_CHECKING:
    from kvproof.check.data_plane.run.results import CaseResult, CorrectnessResult
    from kvproof.check.data_plane.steps.moves import Scenario
    from kvproof.check.protocol.manager import ManagerSubject

JUDGE = "data plane"
SWAPS, COPIES, HAZARDS = "swap-mapping", "cow-copied", "mapping-hazard-free"
LINTER, REFUSED = "linter", "REFUSED_MAPPING"
GENERATOR, READS = "paged decoder", "read-back"
NO_PAIRS, NO_MANAGER = "no mapping of this run has such pairs", "no mapping of this run came from a manager"
SECONDS_MIN = 0.2  # with less time, a stage does not start
# In the gate:
SUBJECTS, ENGINE = ("kvproof", "kvproof-scheduler"), "engine"
GENERATED = Check(f"{JUDGE}/{READS}/{GENERATOR}", JUDGE, READS, Verdict.UNKNOWN, text=NOT_RUN)  # of the generator
NOTHING_TO_MOVE = "it emits neither swaps nor copies, so there are no bytes to move"


@dataclass(frozen=True)
class Moved:
    """What a manager moved in its walk. lists: of its steps.

    lacking: why there may be none. is_excused: whether only findings that are known are the reason.
    """

    lists: list[MovedLists]
    lacking: str = ""
    is_excused: bool = False


@dataclass(frozen=True)
class EmittingManager:
    """A manager whose mappings are moved. name: for reports. moved: what it moved, and why that may be nothing."""

    name: str
    moved: Callable[[StageBudget], Moved]


@dataclass(frozen=True)
class DataPlaneOptions:
    """The options of the stages of the data plane, and what they share.

    layouts, dtypes: empty for the defaults of the harness. manager: a manager whose mappings replace those of the
    harness. lacking: the properties that this manager cannot have, each with the reason. broken: after an executor has
    broken the device, the reason why it can no longer be used. report_work: is called with what is done next, which
    begins with the name of the executor and a colon if it is a case. plane: the part of the result document that the
    stages fill.
    """

    device: str
    executors: tuple[str, ...]
    layouts: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    is_short: bool = False
    manager: EmittingManager | None = None
    lacking: Mapping[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    report_work: Callable[[str], None] = lambda what: None
    plane: DataPlane = field(default_factory=lambda: DataPlane("cpu"))


def planned(executors: Sequence[str], lacking: Mapping[str, str] | None = None) -> list[Check]:
    """The checks of `correctness_stage`, with their verdict before the run.

    lacking: the properties that the subject cannot have, each with the reason; they are unsupported.
    """
    claims = [*((property, name) for name in executors for property in (SWAPS, COPIES)), (HAZARDS, LINTER)]
    checks = [Check(f"{JUDGE}/{one}/{name}", JUDGE, one, Verdict.UNKNOWN, text=NOT_RUN) for one, name in claims]
    return [
        replace(check, verdict=Verdict.UNSUPPORTED, text=lacking[check.property])
        if lacking and check.property in lacking
        else check
        for check in checks
    ]


def correctness_stage(options: DataPlaneOptions, share: float) -> Stage:
    """Let every executor move blocks between filled pools, and compare every byte."""
    all_checks = planned(options.executors, options.lacking)
    planned_checks = [check for check in all_checks if check.verdict is Verdict.UNKNOWN]

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        if budget.seconds < SECONDS_MIN:
            yield from out_of_time(planned_checks)
            return
        with uninterrupted():
            from kvproof.check.data_plane.run.correctness import CorrectnessConfig, run_correctness
            from kvproof.check.data_plane.run.results import add_cases, add_correctness

        began, given = time.monotonic(), None
        if options.manager:
            moved = options.manager.moved(budget)
            given = _scenario_of(options.manager.name, budget.seed, moved)
            if not given.steps:
                verdict = Verdict.UNSUPPORTED if moved.is_excused else Verdict.UNKNOWN
                yield from (replace(check, verdict=verdict, text=moved.lacking) for check in planned_checks)
                return
        config = CorrectnessConfig(
            budget.seed,
            options.device,
            options.executors,
            options.layouts,
            options.dtypes,
            is_short=options.is_short,
            given=given,
            seconds_max=budget.seconds - (time.monotonic() - began),
        )
        cases: list[CaseResult] = []

        def advance(what: str, done: int, total: int) -> None:
            options.report_work(what)
            budget.advance(done)

        try:
            with budget.within_the_run():
                found = run_correctness(config, advance, cases.append)
        except KeyboardInterrupt:  # refutations so far remain; the other checks stay unknown
            add_cases(options.plane, cases)
            yield from (check for check in _all_decided(planned_checks, cases) if check.verdict is Verdict.REFUTED)
            raise
        add_correctness(options.plane, found)
        options.broken.extend(filter(None, [found.broken]))
        decided = _all_decided(planned_checks, found.cases)
        yield from (_left_open(check, found.unrun) for check in decided)
        yield from _self_test(found)

    return Stage(JUDGE, share, all_checks, run)


def out_of_time(planned_checks: Sequence[Check]) -> Iterator[Check]:
    """The checks of a stage that has too little time to start."""
    return (replace(check, text=NO_TIME) for check in planned_checks)


def _scenario_of(name: str, seed: int, moved: Moved) -> Scenario:
    """The mappings of a manager, for the pools of the harness."""
    from kvproof.check.data_plane.mappings.emitted import steps_within
    from kvproof.check.data_plane.run.correctness import SMALL
    from kvproof.check.data_plane.steps.moves import Scenario

    sizes = SMALL.num_gpu_blocks, SMALL.num_cpu_blocks
    return Scenario(f"of {name}", seed, *sizes, SMALL.block_size, tuple(steps_within(moved.lists, *sizes)))


def _all_decided(planned_checks: Sequence[Check], cases: Sequence[CaseResult]) -> Iterator[Check]:
    for check in planned_checks:
        if check.property == HAZARDS:
            yield _linted(check, cases)
        else:
            yield _decided(check, [case for case in cases if case.executor == _executor(check)])


def _decided(check: Check, cases: Sequence[CaseResult]) -> Check:
    """The verdict on one property of one executor."""
    mine = [case for case in cases if check.property in _exercised(case)]
    run = [case for case in mine if not case.reason]
    failed = [case for case in cases if _broken(case) == check.property]
    passed = [case for case in run if case.finding is None]
    counts = {
        "cases": len(run),
        "pairs": sum(case.num_pairs for case in run),
        "bytes compared": sum(case.bytes_proven for case in run),
    }
    seconds = round(sum(case.seconds for case in run), 3)
    if failed:
        return refuted(replace(check, seconds=seconds, counts=counts), _shown(failed))
    if passed:
        return replace(check, verdict=Verdict.NOT_REFUTED, seconds=seconds, counts=counts, text="")
    if run:
        text = "every case with such a mapping ended with another finding"
        return replace(check, verdict=Verdict.UNKNOWN, seconds=seconds, counts=counts, text=text)
    reasons = dict.fromkeys(case.reason for case in cases if case.reason)
    text = "; ".join(reasons) or NO_PAIRS
    return replace(check, verdict=Verdict.UNSUPPORTED, text=text)


def _left_open(check: Check, unrun: Mapping[str, str]) -> Check:
    """A check without a case is unknown if planned cases were not run, as one of them might have decided it.

    unrun: why, by executor.
    """
    why = unrun.get(_executor(check)) if check.property != HAZARDS else next(iter(unrun.values()), None)
    if why and check.verdict is Verdict.UNSUPPORTED and check.text in (NO_PAIRS, NO_MANAGER):
        return replace(check, verdict=Verdict.UNKNOWN, text=f"no case about it was run: {why}")
    return check


def _executor(check: Check) -> str:
    return check.id.split("/", 2)[2]


def _linted(check: Check, cases: Sequence[CaseResult]) -> Check:
    """The verdict on the mappings that a manager emitted; the adversarial ones are drawn to be right."""
    from kvproof.check.data_plane.mappings import ADVERSARIAL

    refused = [case for case in cases if case.finding is not None and case.finding.kind.name == REFUSED]
    theirs = {case.mapping: case for case in cases if case.mapping not in ADVERSARIAL and not case.reason}
    if refused:
        return refuted(check, _shown(refused))
    if not theirs:
        return replace(check, verdict=Verdict.UNSUPPORTED, text=NO_MANAGER)
    pairs = sum(case.num_pairs for case in theirs.values())
    return replace(check, verdict=Verdict.NOT_REFUTED, counts={"mappings linted": len(theirs), "pairs": pairs}, text="")


def _exercised(case: CaseResult) -> set[str]:
    """The properties that the mapping of a case exercises."""
    swaps = {SWAPS} if any(moves.swap_in or moves.swap_out for moves in case.moves) else set()
    return swaps | ({COPIES} if any(moves.copy for moves in case.moves) else set())


def _broken(case: CaseResult) -> str:
    """The property that the finding of a case refutes; empty if there is no finding.

    Swaps run before copies, and a copy spreads the error of a swap. So a wrong block that was swapped refutes the swap.
    """
    finding = case.finding
    if finding is None:
        return ""
    if finding.kind.name == REFUSED:
        return HAZARDS
    if finding.wrong:
        moves = case.moves[finding.step - 1]
        swapped_in = {target for _, target in moves.swap_in}
        if any(row.pool == 1 or row.block in swapped_in for row in finding.wrong):
            return SWAPS
        if moves.copy:
            return COPIES
    return SWAPS if SWAPS in _exercised(case) else COPIES


def _shown(failed: Sequence[CaseResult]) -> FailedCase:
    """The first finding, and the number of other cases that failed."""
    first = failed[0]
    assert first.finding is not None
    where = f"{first.executor}, {first.layout}, {first.dtype}, mapping {first.mapping}, seed {first.seed}"
    num_others = len(failed) - 1
    others = f"; {num_others} further {'case fails' if num_others == 1 else 'cases fail'}" if num_others else ""
    return FailedCase(f"{first.finding.text}{others}", where)


def _wrong_texts(wrong: Mapping[str, str]) -> FailedCase:
    """The first workload whose text differs, and the others. wrong: what is wrong, by workload."""
    (first, reason), *others = wrong.items()
    text = "; ".join([reason, *(f"workload {name}: {what}" for name, what in others)])
    return FailedCase(text, f"workload {first}")


def _self_test(found: CorrectnessResult) -> Iterator[WitnessCount]:
    """The number of planted faults, races and bad mappings that were diagnosed right, and each one that was not."""
    num_planted = len(found.faults) + len(found.races) + len(found.lints)
    yield WitnessCount("planted faults caught", JUDGE, num_planted - len(found.missed))
    for name in found.missed:
        yield WitnessCount(f"planted: {name}", JUDGE, 0)


def generating_stage(options: DataPlaneOptions, share: float) -> Stage:
    """Generate text through paged memory, and compare it with the text of the same decoder without pages."""
    planned_checks = [GENERATED]

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        if budget.seconds < SECONDS_MIN:
            yield from out_of_time(planned_checks)
            return
        if options.broken:
            yield replace(planned_checks[0], text=f"an executor broke the device: {options.broken[0]}")
            return
        with uninterrupted():
            from kvproof.check.data_plane.end_to_end.comparing import run_end_to_end
        from kvproof.check.data_plane.end_to_end.workloads import WORKLOADS
        from kvproof.check.data_plane.run.results import add_end_to_end

        began, done = time.monotonic(), 0

        def advance(what: str) -> None:
            nonlocal done
            options.report_work(what)
            done += 1
            budget.advance(done)

        with budget.within_the_run():
            found = run_end_to_end(budget.seed, options.device, on_progress=advance)
        add_end_to_end(options.plane, found)
        if found.is_cut:
            budget.stopped_after(done, 0, "workloads and planted faults")
        wrong = {workload.name: workload.reason for workload in found.workloads if not workload.is_right}
        check = replace(
            planned_checks[0],
            verdict=Verdict.UNKNOWN if found.is_cut else Verdict.NOT_REFUTED,
            seconds=round(time.monotonic() - began, 3),
            counts={
                "workloads": len(found.workloads),
                "sequences": sum(workload.num_sequences for workload in found.workloads),
                "tokens": sum(workload.num_tokens for workload in found.workloads),
            },
            text=budget.stopped,
        )
        yield refuted(check, _wrong_texts(wrong)) if wrong else check
        for workload in found.workloads:
            for name in WORKLOADS[workload.name].expected:
                yield WitnessCount(f"{workload.name}: {name}", GENERATOR, workload.witness_counts.get(name, 0))
        yield WitnessCount("planted faults caught", GENERATOR, found.num_caught)
        for fault in found.faults:
            if not fault.is_caught:
                yield WitnessCount(f"planted: {fault.name}", GENERATOR, 0)

    return Stage(GENERATOR, share, planned_checks, run)


def stages_left_out(reason: str, is_built_in: bool) -> list[Stage]:
    """The stages of the data plane if it cannot run. is_built_in: the subject is kvproof's own."""
    generating = [left_out(GENERATOR, [GENERATED], reason)] if is_built_in else []
    return [left_out(JUDGE, planned((ENGINE,)), reason), *generating]


def short_stages(device: str = "cpu", note: str = "") -> tuple[list[Stage], DataPlane]:
    """The stages of a built-in subject on a device, and the part of the result that they fill. note: for the report."""
    plane = DataPlane(device, notes=[note] if note else [])
    options = DataPlaneOptions(device, (ENGINE,), is_short=True, plane=plane)
    return [correctness_stage(options, share=8), generating_stage(options, share=4)], plane


def emits(one: ManagerSubject) -> bool:
    return capabilities_of(one).swap or capabilities_of(one).fork


def emitted_stages(manager: EmittingManager, one: ManagerSubject) -> tuple[list[Stage], DataPlane | None]:
    """The stage of any other manager, and the part of the result that it fills; None if it emits no mappings."""
    if not emits(one):
        return [left_out(JUDGE, planned((ENGINE,)), NOTHING_TO_MOVE)], None
    note = f"The mappings are those of {manager.name}; the engine that executed them is kvproof's."
    plane = DataPlane("cpu", notes=[note])
    options = DataPlaneOptions("cpu", (ENGINE,), is_short=True, manager=manager, plane=plane)
    facts = Facts(capabilities_of(one))
    reasons = {name: need.unfulfilled(facts) for name, need in ((SWAPS, SWAP), (COPIES, FORK))}
    options = replace(options, lacking={name: reason for name, reason in reasons.items() if reason is not None})
    return [correctness_stage(options, share=8)], plane
