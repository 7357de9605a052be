"""The run as a whole: what it covers, what it says, and that it fails when something is wrong."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from kvproof.check.data_plane import correctness
from kvproof.check.data_plane.correctness import CorrectnessConfig, run_correctness
from kvproof.check.data_plane.executors import BUILT_IN, Executor, MoveBlocks
from kvproof.check.data_plane.layouts import UnknownSetting
from kvproof.check.data_plane.moves import Moves
from kvproof.check.data_plane.results import CaseStatus, CorrectnessResult
from kvproof.check.data_plane.world import Caches

FEW = CorrectnessConfig(
    seed=7,
    executors=("engine", "vllm"),
    layouts=("nhd", "latent"),
    dtypes=("bfloat16", "int8"),
    mappings=("one", "permutation", "ends"),
    is_short=True,
)


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


def test_what_was_not_run_is_said(result: CorrectnessResult) -> None:
    (skipped,) = [case for case in result.cases if case.status is CaseStatus.SKIPPED]
    assert skipped.executor == "vllm"
    assert f"vllm was not run: {skipped.reason}." in result.notes
    assert result.num_combinations == 2 * 2 * 2 * 3
    assert any(note.startswith("The matrix has 24 combinations") for note in result.notes)
    assert any("no CUDA device was used" in note for note in result.notes)


def test_a_result_is_plain_data(result: CorrectnessResult) -> None:
    document = msgspec.json.decode(msgspec.json.encode(result))
    assert document["seed"] == 7
    assert document["cases"][0]["status"] == "passed"


def test_progress_ends_where_it_said_it_would() -> None:
    told: list[tuple[str, int, int]] = []
    config = replace(FEW, executors=("engine",), layouts=("nhd",), dtypes=("int8",), mappings=("one",))
    run_correctness(config, lambda what, done, total: told.append((what, done, total)))
    assert ("cases", 1, 1) in told
    assert ("injected faults", 36, 36) in told
    assert all(0 <= done <= total for _, done, total in told)


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


def test_where_memory_is_short_pools_are_smaller_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
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
