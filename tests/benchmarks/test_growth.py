"""The growth curves: the fit, the verdict, and what happens to a call that fails or takes too long."""

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.driven import BLOCK_SIZE

from benchmarks import driven, growth
from kvproof.impl import BlockManager, SequenceStatus

SIZES = (2, 4, 8)
EVERY_CALL = (*growth.FLAT, *growth.LINEAR)
NUM_APPENDS = 2 * BLOCK_SIZE
EVERY_MODE = pytest.mark.parametrize("caching", [False, True])


@pytest.fixture(autouse=True, scope="module")
def few_appends() -> Iterator[None]:
    """Sequences grow by two blocks while appends are timed, not by sixteen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "NUM_APPENDS", NUM_APPENDS)
        yield


@pytest.fixture(scope="module")
def measured(few_appends: None) -> dict[bool, growth.Curves]:
    """The curves of our manager without a prefix cache, each the best of two, and with one."""
    return {caching: growth.measure(driven.ours(), caching, SIZES, 1 if caching else 2) for caching in (False, True)}


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5])
def test_the_exponent_of_a_power_is_that_power(power: float) -> None:
    assert growth.exponent({size: 3 * size**power for size in growth.SIZES}) == pytest.approx(power)


def test_a_constant_call_may_not_grow_and_a_linear_one_not_more_than_linearly() -> None:
    curves = {power: {size: float(size) ** power for size in growth.SIZES} for power in (0.0, 0.2, 1.0, 1.3)}
    assert [growth.is_as_wanted("append_slots", curve) for curve in curves.values()] == [True, False, False, False]
    assert [growth.is_as_wanted("fork", curve) for curve in curves.values()] == [True, True, True, False]


@EVERY_MODE
def test_every_call_has_a_cost_at_every_size(caching: bool, measured: dict[bool, growth.Curves]) -> None:
    curves = measured[caching]
    assert {call: tuple(curve) for call, curve in curves.costs.items()} == dict.fromkeys(EVERY_CALL, SIZES)
    assert curves.stopped == {}


def test_a_fork_that_recurses_too_deeply_is_named_and_left_out() -> None:
    class Recursive(BlockManager):
        def fork(self, parent_seq: Any, child_seq: Any) -> None:
            if len(self.get_block_table(parent_seq)) > 8:  # 2 and 4 blocks have grown by 3 and a half
                raise RecursionError
            super().fork(parent_seq, child_seq)

    curves = growth.measure(driven.Driven(driven.OURS, Recursive, SequenceStatus), False, SIZES, 1)
    assert tuple(curves.costs["fork"]) == (2, 4)
    assert tuple(curves.costs["free"]) == SIZES
    assert curves.stopped == {"fork": "RecursionError at 8 blocks"}


def test_what_takes_too_long_is_not_tried_longer() -> None:
    curves = growth.Curves({}, {})
    curves.add(16, [{"swap out and in": growth.TOO_LONG}])
    assert curves.stopped == {}
    curves.add(64, [{"swap out and in": growth.TOO_LONG * 8}])
    assert curves.stopped == {"swap out and in": "not tried beyond 64 blocks: 2.0 s"}


def test_the_table_shows_costs_exponents_and_what_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    curves = growth.Curves({"fork": {16: 1.0, 64: 4.0}, "append_slots": {16: 1.0, 64: 2.0}}, {"free": "not measured"})
    growth.report("naive", driven.OURS, curves, (16, 64))
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert ["fork", "1.000", "4.000", "1.00", "linear:", "met"] in rows
    assert ["append_slots", "1.000", "2.000", "0.50", "constant:", "missed"] in rows
    assert ["free", "-", "-", "linear", "not", "measured"] in rows


def test_the_figures_hold_each_curve(monkeypatch: pytest.MonkeyPatch, measured: dict[bool, growth.Curves]) -> None:
    monkeypatch.setattr(growth, "managers", lambda: ([driven.ours()], "vLLM is left out"))
    monkeypatch.setattr(growth, "measure", lambda one, caching, sizes, repeats: measured[caching])
    figures = growth.main(SIZES, 2)
    assert set(figures) == {"sizes", "missing", "naive", "caching"}
    assert tuple(figures["naive"][driven.OURS]["append_slots"]["microseconds_per_call"]) == SIZES


@pytest.mark.engine
@EVERY_MODE
def test_the_other_manager_is_measured_likewise(caching: bool) -> None:
    both, missing = driven.managers()
    assert missing == ""
    curves = growth.measure(both[1], caching, SIZES, 1)
    assert both[1].name == driven.THEIRS
    assert {call: tuple(curve) for call, curve in curves.costs.items()} == dict.fromkeys(EVERY_CALL, SIZES)
