"""The operations that a walk can do, so that a report can say which it did not do."""

from dataclasses import replace

from kvproof.check.hunting.walk_stage import operations_possible
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler

SWAPS = {"swap_out", "swap_in"}


def test_an_operation_is_possible_if_the_capabilities_and_the_fixed_fields_allow_it() -> None:
    strategy, can = strategy_of(BuiltIn()), capabilities_of(BuiltIn())
    whole = set(operations_possible(strategy, can, {}))
    assert whole >= {"new", "admit", "run", "fork", *SWAPS}
    assert set(operations_possible(strategy, replace(can, fork=False), {})) == whole - {"fork"}


def test_what_only_a_shorter_run_has_is_no_operation_that_a_walk_could_do() -> None:
    subject = BuiltInScheduler()
    strategy = strategy_of(subject)
    assert "drain" in strategy.level.kinds
    possible = operations_possible(strategy, capabilities_of(subject), {})
    assert "drain" not in possible
    assert "schedule" in possible
