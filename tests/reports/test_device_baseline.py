"""What counts as slower than a baseline of a data plane, and when the host itself is named."""

from dataclasses import replace

import pytest

from kvproof.reports.data_plane_result import Bandwidth, HostCost, Speed, Spread
from kvproof.reports.device_baseline import compared, host_change


def spread(value: float) -> Spread:
    return Spread(value, value, value)


def speed(name: str, mapping: str, ratio: float) -> Speed:
    return Speed(name, mapping, "plain", 4, 1024, 2048, spread(50.0), spread(ratio), 0.01)


def measured(device: str, ratio: float, host_cost: float = 1.0, other_cost: float = 2.0) -> Bandwidth:
    """One move, one comparison and two host costs. host_cost, other_cost: microseconds for a pair."""
    moves, verification = [speed("engine", "swap in", ratio)], [speed("kernel", "verify", ratio)]
    costs = [HostCost("engine", "swap in", 64, spread(host_cost)), HostCost("other", "copy", 64, spread(other_cost))]
    return Bandwidth(device, "card", "nhd", "int8", 64, 9, [], moves, verification, costs, 1.0, 0.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_speed_may_change_by_a_tenth(device: str) -> None:
    before = measured(device, 1.0)
    assert [one.is_worse for one in compared(measured(device, 0.92), before)] == [False, False]
    assert [one.is_worse for one in compared(measured(device, 0.89), before)] == [True, True]


def test_a_host_is_named_if_a_pair_costs_every_executor_more_or_less_than_before() -> None:
    before = measured("cuda", 1.0)
    slower = "The host is slower or busier than in the baseline: a pair costs it 2.10 times as much (the median of 2 "
    assert host_change(measured("cuda", 1.0, 2.1, 4.2), before).startswith(slower)
    assert "faster or less busy" in host_change(measured("cuda", 1.0, 0.5, 1.0), before)
    assert host_change(measured("cuda", 1.0, 1.2, 2.4), before) == ""
    assert host_change(measured("cuda", 1.0, 4.0, 1.9), before) == ""  # one executor alone has changed
    alone = replace(measured("cuda", 1.0, 4.0), host_costs=measured("cuda", 1.0, 4.0).host_costs[:1])
    assert host_change(alone, before) == ""  # and it may have changed by itself
