"""What the stages of the device command make of what the harness found."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from kvproof.check.data_plane.mappings import scenario
from kvproof.check.data_plane.memory.pattern import Origin
from kvproof.check.data_plane.run import correctness
from kvproof.check.data_plane.run.correctness import SMALL
from kvproof.check.data_plane.run.results import (
    CaseResult,
    CaseStatus,
    CorrectnessResult,
    DataFinding,
    FaultResult,
    FindingKind,
    WrongClass,
    WrongRow,
)
from kvproof.check.data_plane.speed import bandwidth
from kvproof.check.hosts.time_limit import GRACE_SECONDS, OutOfTime
from kvproof.check.runs import data_plane_stage
from kvproof.check.runs.bandwidth_stage import timing_stage
from kvproof.check.runs.data_plane_stage import (
    DataPlaneOptions,
    correctness_stage,
    generating_stage,
    short_stages,
)
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.reports.data_plane_result import Bandwidth, DataPlane, MovedCase, Speed, Spread
from kvproof.reports.result import Check, WitnessCount
from kvproof.spec.verdict import Verdict

CASE = CaseResult("engine", "nhd", "int8", "", "cpu", "none", 3, CaseStatus.PASSED, num_pairs=5, bytes_proven=64)
NOWHERE = Origin(0, 0, 0, 0, 0, 0)
Give = Callable[..., list[StageOutput]]


def of_mapping(kind: str) -> CaseResult:
    """A case with this mapping that passed."""
    steps = scenario(kind, 3, SMALL.num_gpu_blocks, SMALL.num_cpu_blocks, SMALL.block_size).steps
    return replace(CASE, mapping=kind, moves=tuple(step.moves for step in steps))


PASSED = of_mapping("all")


def wrong_row(pool: int, block: int) -> WrongRow:
    return WrongRow(
        pool=pool,
        layer=0,
        part=0,
        block=block,
        memory_row=block,
        row_in_block=0,
        wrong_class=WrongClass.MOVED,
        origin=None,
        expected=NOWHERE,
        num_words=1,
        shift_bytes=None,
        text=f"block {block} is wrong",
    )


def failed(mapping: str, step: int, *rows: WrongRow) -> CaseResult:
    """The case that found these rows after this step."""
    case = of_mapping(mapping)
    pairs = sum(moves.num_pairs for moves in case.moves[:step])
    finding = DataFinding(FindingKind.WRONG_BYTES, rows[0].text, step, rows, len(rows), len(rows), {"moved": 1})
    return replace(case, status=CaseStatus.FAILED, num_pairs=pairs, finding=finding)


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Runs the stage on a harness that has found this."""

    def run(cases: Iterable[CaseResult], faults: Iterable[FaultResult] = (), unrun: str = "") -> list[StageOutput]:
        why = {"engine": unrun} if unrun else {}
        found = CorrectnessResult(3, "cpu", tuple(cases), 9, tuple(faults), (), (), (), 1.0, why)
        monkeypatch.setattr(correctness, "run_correctness", lambda config, progress, on_case: found)
        return outputs_of(correctness_stage(DataPlaneOptions("cpu", ("engine",)), 1))

    return run


def speed(executor: str, mapping: str = "swap in") -> Speed:
    once = Spread(1.0, 1.0, 1.0)
    return Speed(executor, mapping, "plain", 4, 1024, 2048, once, once, 0.01)


def not_compared(executor: str) -> WitnessCount:
    return WitnessCount(f"compared with the baseline: {executor}", "speed", 0)


def outputs_of(stage: Stage, seconds: float = 100.0) -> list[StageOutput]:
    return list(stage.run(StageBudget(3, seconds, lambda count: None)))


def verdicts(outputs: list[StageOutput]) -> dict[str, Verdict]:
    return {check.property: check.verdict for check in outputs if isinstance(check, Check)}


def test_what_passed_is_not_refuted_and_what_no_mapping_spoke_of_is_unsupported(give: Give) -> None:
    outputs = verdicts(give([PASSED]))
    assert outputs == {
        "swap-mapping": Verdict.NOT_REFUTED,
        "cow-copied": Verdict.NOT_REFUTED,
        "mapping-hazard-free": Verdict.UNSUPPORTED,
    }
    assert verdicts(give([of_mapping("empty")])) == dict.fromkeys(outputs, Verdict.UNSUPPORTED)
    assert verdicts(give([of_mapping("preemption")]))["mapping-hazard-free"] is Verdict.NOT_REFUTED


def test_a_skipped_case_gives_its_reason_and_no_claim(give: Give) -> None:
    outputs = give([replace(PASSED, status=CaseStatus.SKIPPED, reason="it needs CUDA")])
    texts = {check.text for check in outputs if isinstance(check, Check) and check.property != "mapping-hazard-free"}
    assert texts == {"it needs CUDA"}
    assert set(verdicts(outputs).values()) == {Verdict.UNSUPPORTED}


def test_a_wrong_copy_refutes_the_copy_and_a_wrong_swap_the_swap(give: Give) -> None:
    # The kind `all` swaps everything out in step 1, in in step 2, and copies one half to the other in step 3.
    copied = verdicts(give([failed("all", 3, wrong_row(0, 23)), PASSED]))
    assert (copied["cow-copied"], copied["swap-mapping"]) == (Verdict.REFUTED, Verdict.NOT_REFUTED)
    swapped = verdicts(give([failed("all", 2, wrong_row(0, 1)), PASSED]))
    assert (swapped["swap-mapping"], swapped["cow-copied"]) == (Verdict.REFUTED, Verdict.NOT_REFUTED)
    out = verdicts(give([failed("all", 1, wrong_row(1, 1)), PASSED]))
    assert out["swap-mapping"] is Verdict.REFUTED


def test_in_a_step_with_both_a_wrong_swap_speaks_before_the_copy_that_spread_it(give: Give) -> None:
    steps = scenario("mixed", 3, SMALL.num_gpu_blocks, SMALL.num_cpu_blocks, SMALL.block_size).steps
    number, moves = next((n, one.moves) for n, one in enumerate(steps, 1) if one.moves.swap_in and one.moves.copy)
    swapped, copied = moves.swap_in[0][1], moves.copy[0][1]
    both = verdicts(give([failed("mixed", number, wrong_row(0, copied), wrong_row(0, swapped)), PASSED]))
    assert (both["swap-mapping"], both["cow-copied"]) == (Verdict.REFUTED, Verdict.NOT_REFUTED)
    only = verdicts(give([failed("mixed", number, wrong_row(0, copied)), PASSED]))
    assert (only["swap-mapping"], only["cow-copied"]) == (Verdict.NOT_REFUTED, Verdict.REFUTED)


def test_what_only_ended_at_another_finding_is_unknown(give: Give) -> None:
    outputs = give([failed("all", 2, wrong_row(0, 1))])
    assert verdicts(outputs)["cow-copied"] is Verdict.UNKNOWN


def test_a_refutation_names_the_case_its_seed_and_how_many_more(give: Give) -> None:
    one = failed("all", 2, wrong_row(0, 1))
    (text,) = [check.text for check in give([one, one]) if isinstance(check, Check) and check.is_failure]
    assert text == "engine, nhd, int8, mapping all, seed 3: block 1 is wrong; 1 further case fails"


def test_a_mapping_that_the_linter_refuses_is_the_managers_fault_and_not_the_executors(give: Give) -> None:
    refusal = DataFinding(FindingKind.REFUSED_MAPPING, "block 3 is the target of two", 1)
    case = replace(of_mapping("preemption"), status=CaseStatus.FAILED, finding=refusal)
    outputs = verdicts(give([case, PASSED]))
    assert outputs["mapping-hazard-free"] is Verdict.REFUTED
    assert outputs["swap-mapping"] is outputs["cow-copied"] is Verdict.NOT_REFUTED


def test_a_planted_fault_that_was_missed_is_an_unmet_witness(give: Give) -> None:
    caught = FaultResult("a", "A.", True, "caught", "moved", True, True)
    misjudged = FaultResult("b", "B.", True, "caught", "moved", True, origin_is_true=False)
    witnesses = [one for one in give([PASSED], [caught, misjudged]) if isinstance(one, WitnessCount)]
    assert [(one.name, one.count, one.is_expected) for one in witnesses] == [
        ("planted faults caught", 1, True),
        ("planted: b", 0, True),
    ]


def test_without_time_nothing_is_begun_and_everything_is_unknown() -> None:
    outputs = outputs_of(
        correctness_stage(DataPlaneOptions("cpu", ("engine",)), 1), seconds=data_plane_stage.SECONDS_MIN / 2
    )
    assert {(check.verdict, check.text) for check in outputs if isinstance(check, Check)} == {
        (Verdict.UNKNOWN, "the time limit (--budget) was over before this judge began")
    }


def test_for_built_in_subjects_bytes_are_moved_and_text_is_generated() -> None:
    stages, plane = short_stages()
    assert ([stage.name for stage in stages], plane) == (["data plane", "paged decoder"], DataPlane("cpu"))


def test_a_foreign_baseline_is_reported_and_wrong_executors_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []

    def run(config: bandwidth.BandwidthConfig, progress: object) -> Bandwidth:
        timed.extend(executor.name for executor in config.executors)
        return Bandwidth("cpu", "here", "nhd", "int8", 64, 9, [], [], [], [], 1.0, 0.0)

    monkeypatch.setattr(bandwidth, "run_bandwidth", run)
    plane = DataPlane("cpu", cases=[MovedCase("engine", "nhd", "int8", "all", "none", "failed")])
    chosen = DataPlaneOptions("cpu", ("engine", "block-copy", "kv-store"), plane=plane)
    before = Bandwidth("cpu", "there", "nhd", "int8", 64, 9, [], [speed("block-copy")], [], [], 1.0, 0.0)
    assert outputs_of(timing_stage(chosen, 1, 1.0, before, "before.json")) == [not_compared("block-copy")]
    assert timed == ["block-copy"]
    assert plane.baseline == "before.json was not compared: its device name is there, but this run has here."
    assert plane.comparisons == []
    assert plane.bandwidth is not None
    assert plane.bandwidth.skipped[0] == "engine: a correctness case failed"
    assert [one.split(";")[0] for one in plane.bandwidth.skipped[1:]] == ["kv-store: it writes to a disk"]


def test_a_baseline_is_answered_only_by_all_speeds_of_the_executors_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measured(*moves: Speed) -> Bandwidth:
        return Bandwidth("cpu", "here", "nhd", "int8", 64, 9, [], list(moves), [], [], 1.0, 0.0)

    before = measured(speed("engine"), speed("engine", "copy"), speed("vllm"), speed("kv-store"))
    now = measured(speed("engine"), speed("engine", "copy"), speed("block-copy"))
    monkeypatch.setattr(bandwidth, "run_bandwidth", lambda config, progress: now)
    chosen = DataPlaneOptions("cpu", ("engine", "block-copy", "vllm"), plane=DataPlane("cpu"))
    compared = WitnessCount("compared with the baseline: engine", "speed", 2)
    assert outputs_of(timing_stage(chosen, 1, 1.0, before, "before.json")) == [compared, not_compared("vllm")]
    now.moves.pop(1)
    answers = outputs_of(timing_stage(chosen, 1, 1.0, before, "before.json"))
    assert answers == [not_compared("engine"), not_compared("vllm")]


def test_without_an_executor_that_is_timed_the_reason_is_reported() -> None:
    chosen = DataPlaneOptions("cpu", ("kv-store",), plane=DataPlane("cpu"))
    assert outputs_of(timing_stage(chosen, 1, 1.0, None, "")) == []
    (note,) = chosen.plane.notes
    assert note.startswith("No speed was measured: kv-store was not timed: it writes to a disk; ")


def test_on_a_device_that_was_broken_nothing_is_generated_or_timed_and_that_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = failed("all", 3, wrong_row(0, 23))
    found = CorrectnessResult(3, "cuda", (case,), 9, (), (), (), (), 1.0, {"engine": "it broke"}, broken="a bad access")
    monkeypatch.setattr(correctness, "run_correctness", lambda config, progress, on_case: found)
    data_plane_stage = DataPlaneOptions("cpu", ("engine",), plane=DataPlane("cpu"))
    outputs_of(correctness_stage(data_plane_stage, 1))
    (generated,) = outputs_of(generating_stage(data_plane_stage, 1))
    assert isinstance(generated, Check)
    assert (generated.verdict, generated.text) == (Verdict.UNKNOWN, "an executor broke the device: a bad access")
    before = Bandwidth("cpu", "here", "nhd", "int8", 64, 9, [], [speed("engine")], [], [], 1.0, 0.0)
    assert outputs_of(timing_stage(data_plane_stage, 1, 1.0, before, "before.json")) == [not_compared("engine")]
    assert data_plane_stage.plane.notes == ["No speed was measured: an executor broke the device: a bad access."]
    assert data_plane_stage.plane.baseline == "before.json was not compared: no speed was measured."


def test_without_memory_no_speed_is_measured_and_other_faults_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(message: str) -> None:
        def run(config: object, progress: object) -> Bandwidth:
            raise RuntimeError(message)

        monkeypatch.setattr(bandwidth, "run_bandwidth", run)

    data_plane_stage = DataPlaneOptions("cpu", ("engine",), plane=DataPlane("cpu"))
    fails("DefaultCPUAllocator: can't allocate memory")
    assert outputs_of(timing_stage(data_plane_stage, 1, 1.0, None, "")) == []
    assert data_plane_stage.plane.notes == ["No speed was measured: memory ran out."]
    fails("shapes do not match")
    with pytest.raises(RuntimeError, match="shapes"):
        outputs_of(timing_stage(data_plane_stage, 1, 1.0, None, ""))


def test_an_interrupt_keeps_what_was_refuted_and_leaves_the_rest_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(config: object, progress: object, on_case: Callable[[CaseResult], None]) -> None:
        on_case(PASSED)
        on_case(failed("all", 3, wrong_row(0, 23)))
        raise KeyboardInterrupt

    monkeypatch.setattr(correctness, "run_correctness", interrupted)
    plane = DataPlane("cpu")
    stage = correctness_stage(DataPlaneOptions("cpu", ("engine",), plane=plane), 1)
    outputs: list[StageOutput] = []
    with pytest.raises(KeyboardInterrupt):
        outputs.extend(stage.run(StageBudget(3, 100.0, lambda count: None)))
    assert verdicts(outputs) == {"cow-copied": Verdict.REFUTED}
    assert [case.status for case in plane.cases] == ["passed", "failed"]


def test_what_no_time_was_left_for_is_unknown_and_what_cannot_be_run_is_unsupported(give: Give) -> None:
    empty = of_mapping("empty")
    left = [check for check in give([empty], unrun="it hung") if isinstance(check, Check)]
    assert {(check.verdict, check.text) for check in left} == {(Verdict.UNKNOWN, "no case about it was run: it hung")}
    assert set(verdicts(give([empty])).values()) == {Verdict.UNSUPPORTED}
    skipped = replace(PASSED, status=CaseStatus.SKIPPED, reason="it needs CUDA")
    cannot = verdicts(give([skipped], unrun="the time was over"))
    assert (cannot["swap-mapping"], cannot["mapping-hazard-free"]) == (Verdict.UNSUPPORTED, Verdict.UNKNOWN)
    assert verdicts(give([PASSED], unrun="the time was over"))["swap-mapping"] is Verdict.NOT_REFUTED


def test_a_piece_of_work_without_a_time_limit_ends_soon_after_the_budget_of_the_run() -> None:
    plane = DataPlane("cpu")
    options = DataPlaneOptions("cpu", ("engine",), is_short=True, plane=plane)
    budget = StageBudget(3, 100.0, lambda count: None, run_ends=time.monotonic() - GRACE_SECONDS)
    with pytest.raises(OutOfTime):
        list(correctness_stage(options, 1).run(budget))
    check, *witnesses = generating_stage(options, 1).run(budget)
    assert isinstance(check, Check)
    assert (check.verdict, check.text) == (
        Verdict.UNKNOWN,
        "stopped by --budget after 0 workloads and planted faults",
    )
    assert witnesses == [WitnessCount("planted faults caught", "paged decoder", 0)]
    assert list(timing_stage(options, 1, 8.0, None, "").run(budget)) == []
    assert [note.partition(":")[2] for note in plane.notes[-1:]] == [
        " engine: the time was over before the timing ended; engine, large: the time was over before the timing ended."
    ]
