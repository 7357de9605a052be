"""What counts as slower than a baseline of a data plane, and when the host itself is named."""

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


def slower(device: str, change: float) -> list[str]:
    before, now = measured(device, 1.0), measured(device, 1.0 + change)
    return [one.mapping for one in compared(now, before) if one.is_worse]


def test_on_a_gpu_a_move_may_change_by_five_percent_and_a_comparison_which_needs_the_host_by_ten() -> None:
    assert slower("cuda", -0.04) == []
    assert slower("cuda", -0.08) == ["swap in"]
    assert slower("cuda", -0.11) == ["swap in", "verify"]


def test_in_main_memory_everything_may_change_by_ten_percent() -> None:
    assert slower("cpu", -0.08) == []
    assert slower("cpu", -0.11) == ["swap in", "verify"]


def test_a_host_is_named_if_a_pair_costs_every_executor_more_or_less_than_before() -> None:
    before = measured("cuda", 1.0)
    slower = "The host is slower or busier than in the baseline: a pair costs it 2.10 times as much (the median of 2 "
    assert host_change(measured("cuda", 1.0, 2.1, 4.2), before).startswith(slower)
    assert "faster or less busy" in host_change(measured("cuda", 1.0, 0.5, 1.0), before)
    assert host_change(measured("cuda", 1.0, 1.2, 2.4), before) == ""
    assert host_change(measured("cuda", 1.0, 4.0, 1.9), before) == ""  # one executor alone
