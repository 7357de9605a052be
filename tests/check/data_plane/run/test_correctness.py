"""The run as a whole: what it covers, what it says, and that it fails when something is wrong."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from kvproof.check.data_plane.executors import BUILT_IN, Executor, MoveBlocks
from kvproof.check.data_plane.memory.layouts import UnknownSetting
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.run import correctness
from kvproof.check.data_plane.run.correctness import CorrectnessConfig, run_correctness
from kvproof.check.data_plane.run.results import CaseStatus, CorrectnessResult, FindingKind
from kvproof.check.data_plane.steps.moves import Moves, Scenario, Step

FEW = CorrectnessConfig(
    seed=7,
    executors=("engine", "vllm"),
    layouts=("nhd", "latent"),
    dtypes=("bfloat16", "int8"),
    mappings=("one", "permutation", "ends"),
    is_short=True,
)


@pytest.fixture
def _no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants none: what a test says of the cases, it need not wait for them."""
    monkeypatch.setattr(correctness, "judge_faults", lambda device, on_progress: [])


@pytest.fixture(scope="module")
def result() -> CorrectnessResult:
    return run_correctness(FEW)


def test_every_pair_of_values_is_run_and_all_of_it_is_right(result: CorrectnessResult) -> None:
    run = [case for case in result.cases if case.status is CaseStatus.PASSED]
    assert {(case.layout, case.mapping) for case in run} == {
        (layout, mapping) for layout in FEW.layouts for mapping in FEW.mappings
    }
    assert {(case.dtype, case.mapping) for case in run} == {
        (dtype, mapping) for dtype in FEW.dtypes for mapping in FEW.mappings
    }
    assert result.is_right
    assert (result.findings, result.missed) == ([], [])
    assert result.bytes_proven == sum(case.bytes_proven for case in run) > 0
    assert (len(result.faults), len(result.races), len(result.lints)) == (36, 14, 11)


def test_what_was_not_run_is_reported(result: CorrectnessResult) -> None:
    (skipped,) = [case for case in result.cases if case.status is CaseStatus.SKIPPED]
    assert skipped.executor == "vllm"
    assert f"vllm was not run: {skipped.reason}." in result.notes
    assert result.num_combinations == 2 * 2 * 2 * 3
    assert any(note.startswith("There are 24 combinations") for note in result.notes)
    assert any("no CUDA device was used" in note for note in result.notes)


def test_a_result_is_plain_data(result: CorrectnessResult) -> None:
    document = msgspec.json.decode(msgspec.json.encode(result))
    assert document["seed"] == 7
    assert document["cases"][0]["status"] == "passed"


def test_progress_ends_at_the_announced_total() -> None:
    progress: list[tuple[str, int, int]] = []
    config = replace(FEW, executors=("engine",), layouts=("nhd",), dtypes=("int8",), mappings=("one",))
    run_correctness(config, lambda what, done, total: progress.append((what, done, total)))
    assert ("cases", 1, 1) in progress
    assert ("planted faults", 36, 36) in progress
    assert all(0 <= done <= total for _, done, total in progress)


@pytest.mark.usefixtures("_no_faults")
def test_a_wrong_engine_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(caches: Caches) -> MoveBlocks:
        move = BUILT_IN["block-copy"].prepare(caches)
        return lambda moves: move(Moves(swap_in=moves.swap_in, swap_out=moves.swap_out))

    monkeypatch.setitem(BUILT_IN, "engine", Executor("engine", prepare))
    result = run_correctness(replace(FEW, executors=("engine",), mappings=("one",)))
    assert not result.is_right
    assert result.findings
    assert all("still holds what it held before the step" in finding.text for _, finding in result.findings)


def test_a_fault_that_is_missed_fails_the_run(monkeypatch: pytest.MonkeyPatch, result: CorrectnessResult) -> None:
    missed = replace(result.faults[0], is_caught=False)
    assert replace(result, faults=(missed,)).missed == [missed.name]
    assert not replace(result, faults=(missed,)).is_right
    assert not replace(result, lints=(replace(result.lints[0], message=""),)).is_right
    assert not replace(result, races=(replace(result.races[1], found_race=False),)).is_right


def test_a_run_of_nothing_is_not_right(result: CorrectnessResult) -> None:
    skipped = tuple(case for case in result.cases if case.status is CaseStatus.SKIPPED)
    assert not replace(result, cases=skipped).is_right


@pytest.mark.usefixtures("_no_faults")
def test_where_memory_is_short_pools_are_smaller_and_that_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(FEW, executors=("engine",), layouts=("nhd",), dtypes=("bfloat16",), mappings=("one",))
    result = run_correctness(replace(config, memory_bytes_max=40_000))
    assert result.is_right
    assert any("so small cases have 14 GPU and 10 CPU blocks instead of 24 and 20" in note for note in result.notes)
    monkeypatch.setattr(correctness, "free_bytes", lambda device: 80_000)
    assert any("instead of 24 and 20" in note for note in run_correctness(config).notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"executors": ("engin",)}, "did you mean engine?"),
        ({"layouts": ("nhb",)}, "no layout is named 'nhb'"),
        ({"dtypes": ("fp4",)}, "no element type is named 'fp4'"),
        ({"mappings": ("al",)}, "no kind of mapping is named 'al'"),
        ({"device": "tpu"}, "no device is named 'tpu'"),
    ],
)
def test_unknown_names_are_refused(changes: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(UnknownSetting) as refused:
        run_correctness(replace(FEW, **changes))  # type: ignore[arg-type]
    assert message in str(refused.value)


@pytest.mark.long
def test_everything_that_there_is_is_right() -> None:
    result = run_correctness(CorrectnessConfig())
    assert result.is_right
    run = {(case.layout, case.dtype, case.mapping) for case in result.cases if case.status is CaseStatus.PASSED}
    assert len(run) > 2 * 98  # a table of any two values has 7 × 14 rows; three executors at two sizes have others


def hanging(caches: Caches) -> MoveBlocks:
    def move(moves: Moves) -> None:
        while True:
            pass

    return move


def test_when_the_time_is_over_no_case_begins_and_that_is_reported() -> None:
    config = replace(FEW, executors=("engine", "block-copy"), seconds_max=0.0)
    result = run_correctness(config)
    assert result.cases == ()
    assert len(result.faults) == 36
    assert not result.is_right
    assert any("9 of 9 planned cases were not run, because the time was over" in note for note in result.notes)
    assert result.unrun == dict.fromkeys(("engine", "block-copy"), "the time was over")
    assert any("too few to cover every pair of values" in note for note in result.notes)


@pytest.mark.usefixtures("_no_faults")
def test_executors_take_turns() -> None:
    executors: list[str] = []
    config = replace(FEW, executors=("engine", "block-copy", "index-copy"), is_short=False)
    run_correctness(config, on_case=lambda case: executors.append(case.executor))
    assert executors[:6] == ["engine", "block-copy", "index-copy"] * 2


@pytest.mark.usefixtures("_no_faults")
def test_an_executor_that_hangs_is_not_run_again_and_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILT_IN, "index-copy", Executor("index-copy", hanging))
    result = run_correctness(replace(FEW, executors=("index-copy", "engine"), step_seconds_max=0.2))
    hung = [case for case in result.cases if case.executor == "index-copy"]
    assert [case.finding.kind for case in hung if case.finding] == [FindingKind.HANG]
    assert sum(case.executor == "engine" for case in result.cases) == 3
    assert any(note.startswith("index-copy was not run again, because it hung") for note in result.notes)
    assert result.unrun == {"index-copy": "it hung and was not run again"}


@pytest.mark.usefixtures("_no_faults")
def test_when_an_executor_has_broken_the_device_nothing_more_is_run_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(caches: Caches) -> MoveBlocks:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setitem(BUILT_IN, "index-copy", Executor("index-copy", breaks))
    monkeypatch.setattr(correctness, "broken", lambda device: "an illegal memory access")
    result = run_correctness(replace(FEW, executors=("engine", "index-copy")))
    assert [case.executor for case in result.cases] == ["engine", "index-copy"]
    reason = "index-copy broke the device: an illegal memory access"
    assert result.unrun == {"engine": reason, "index-copy": reason}
    assert result.broken == "an illegal memory access"
    assert "After index-copy, no more cases could be run on cpu: an illegal memory access." in result.notes


@pytest.mark.usefixtures("_no_faults")
def test_what_the_linter_warns_of_and_a_manager_gave_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(Moves(swap_in=((1, 2),), swap_out=((2, 3),)))
    monkeypatch.setattr(correctness, "scenario", lambda kind, *sizes: Scenario(kind, 0, 24, 20, 4, (step, step)))
    config = replace(FEW, executors=("engine",), layouts=("nhd",), dtypes=("int8",), seconds_max=0.0)
    (note,) = [note for note in run_correctness(replace(config, mappings=("preemption",))).notes if "linter" in note]
    assert "mapping preemption, small, step 1: block 2 of the GPU pool is overwritten by a swap in from block 1" in note
    assert "(swapped-in-too-early, two pairs)" in note
    assert not [note for note in run_correctness(replace(config, mappings=("one",))).notes if "linter" in note]
