"""The harness catches every fault of its catalogue, and would notice if it did not."""

from __future__ import annotations

import pytest
import torch

from kvproof.check.data_plane.faults import judging
from kvproof.check.data_plane.faults.catalogue import FAULTS, Fault, FaultyMover, Surface
from kvproof.check.data_plane.faults.judging import judge_faults
from kvproof.check.data_plane.run.results import FaultResult, WrongClass
from kvproof.check.data_plane.steps.moves import PoolId

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def results() -> dict[str, FaultResult]:
    return {result.name: result for result in judge_faults(CPU)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_each_fault_is_caught_and_diagnosed_as_it_is(fault: Fault, results: dict[str, FaultResult]) -> None:
    result = results[fault.id]
    assert result.is_caught
    assert result.class_is_true, result.message
    assert result.origin_is_true is not False, result.message
    assert result.message


def test_every_fault_that_moves_bytes_names_the_true_origin(results: dict[str, FaultResult]) -> None:
    """Of 36 faults, 28 leave bytes of some place; eight leave lanes, zeros, conversions or flipped bits."""
    assert len(results) == 36
    without = {name for name, result in results.items() if result.origin_is_true is None}
    assert without == {
        "high-lanes-lost",
        "odd-lanes-lost",
        "through-float32",
        "through-float16",
        "zeros",
        "source-cleared",
        "bit-flip",
        "one-element",
    }


def judged(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> FaultResult:
    monkeypatch.setattr(judging, "FAULTS", (fault,))
    (result,) = judge_faults(CPU)
    return result


def test_a_fault_that_changes_nothing_counts_as_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    result = judged(monkeypatch, Fault("right", FaultyMover().move, found_by=tuple(WrongClass)))
    assert not result.is_caught
    assert not result.is_understood


def test_a_class_that_is_not_the_true_one_counts_as_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    result = judged(monkeypatch, Fault("nothing", FaultyMover(order=()).move, found_by=(WrongClass.ZERO,)))
    assert result.is_caught
    assert not result.is_understood


def test_an_origin_that_is_not_the_true_one_counts_as_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repetition on addresses moves another block, so the diagnosis of the first one is not true."""
    sources = iter((1, 2, 3))  # a right mover is checked first, and does not call this

    def move(surface: Surface) -> None:
        FaultyMover().move(surface)
        source = next(sources)
        for place in surface.places():
            surface.part(PoolId.GPU, *place)[60] = surface.part(PoolId.GPU, *place)[source]

    result = judged(monkeypatch, Fault("fickle", move, found_by=(WrongClass.MOVED,)))
    assert (result.is_caught, result.class_is_true, result.origin_is_true) == (True, True, False)
    assert not result.is_understood


def test_a_distance_that_is_not_the_true_one_counts_as_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    distances = iter((2, 4))  # in words; the second time, on addresses, twice as far

    def move(surface: Surface) -> None:
        distance = next(distances)
        FaultyMover(copy_block=lambda target, source: target.copy_(torch.roll(source, distance))).move(surface)

    result = judged(monkeypatch, Fault("fickle", move, found_by=(WrongClass.SHIFTED,)))
    assert (result.is_caught, result.class_is_true, result.origin_is_true) == (True, True, False)


def test_an_alarm_about_a_right_mover_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "FaultyMover", lambda: FaultyMover(order=()))
    with pytest.raises(AssertionError, match="reports a right mover as faulty"):
        judge_faults(CPU)
