"""Goals of speed: met, missed, or not measured, and always with the slowest mapping."""

import pytest

from kvproof.check.data_plane.speed.bandwidth import goals
from kvproof.reports.data_plane_result import Bandwidth, DataPlane, Speed, Spread
from kvproof.reports.device_page import device_page
from kvproof.reports.result import Result, Run
from kvproof.reports.terminal import device_lines
from kvproof.spec.verdict import Exit


def speed(name: str, mapping: str, ratio: float) -> Speed:
    return Speed(name, mapping, "", 4, 2**23, 2**24, Spread(5, 4, 6), Spread(ratio, 0, 1), 0.0)


@pytest.fixture
def speeds() -> Bandwidth:
    moves = [
        speed("engine", "swap in, in a row", 0.9),
        speed("engine", "copy, in a row", 0.69),
        speed("engine", "copy, scattered", 0.5),
        speed("block-copy", "copy, scattered", 0.1),
        speed("engine", "copy, scattered, large", 0.6),
        speed("index-copy", "copy, scattered, large", 0.21),
    ]
    verification = [speed("memcmp", "verify", 0.9), speed("torch", "verify", 0.49)]
    return Bandwidth("cpu", "here", "nhd", "int8", 64, 9, [], moves, verification, [], 1.0, 0.0)


def test_a_goal_is_met_if_its_slowest_mapping_meets_it(speeds: Bandwidth) -> None:
    found = {goal.name: (goal.is_met, goal.measured) for goal in goals(speeds, 32 * 1024)}
    assert found == {
        "comparing, with memcmp": (True, "0.90, verify, 8 MiB a call"),
        "comparing, with torch alone": (False, "0.49, verify, 8 MiB a call"),
        "engine, blocks in a row": (False, "0.69, copy, in a row, 8 MiB a call"),
        "engine, scattered blocks": (True, "0.50, copy, scattered, 8 MiB a call"),
        "engine, large calls": (False, "2.86, copy, scattered, large, 8 MiB a call"),
    }


def test_what_a_goal_is_not_for_or_was_not_timed_is_not_compared(speeds: Bandwidth) -> None:
    small = {goal.name: goal for goal in goals(speeds, 16 * 1024)}
    assert small["engine, scattered blocks"].is_met is None
    assert "blocks of 16 KiB; the goal is for 32 KiB and more" in small["engine, scattered blocks"].measured
    speeds.moves, speeds.verification = [], []
    assert {(goal.is_met, goal.measured) for goal in goals(speeds, 32 * 1024)} == {(None, "not measured")}


def test_on_a_gpu_comparing_is_beside_a_plain_read_and_every_call_is_large(speeds: Bandwidth) -> None:
    speeds.device, speeds.verification = "cuda", [speed("one Triton kernel", "verify", 0.84)]
    speeds.moves.append(speed("index-copy", "copy, in a row", 0.2))
    found = {goal.name: (goal.is_met, goal.wanted, goal.measured) for goal in goals(speeds, 32 * 1024)}
    assert found["comparing, with one kernel"] == (False, "0.85 of a plain read", "0.84, verify, 8 MiB a call")
    assert found["engine, large calls"][0] is False  # of 0.6 / 0.21 and 0.69 / 0.2 the lesser
    assert found["engine, large calls"][2] == "2.86, copy, scattered, large, 8 MiB a call"
    assert not {"comparing, with memcmp", "comparing, with torch alone"} & set(found)


def test_a_missed_goal_is_in_every_report_and_changes_no_verdict(speeds: Bandwidth) -> None:
    speeds.goals = goals(speeds, 16 * 1024)
    plane = DataPlane("cpu", bandwidth=speeds)
    lines = dict(device_lines(plane))
    missed = (
        "  goal missed       engine, blocks in a row: wanted 0.7 of a plain copy, "
        "measured 0.69, copy, in a row, 8 MiB a call"
    )
    assert lines[missed] == "yellow"
    assert any(
        line.startswith("  goal not compared engine, scattered blocks: wanted 0.5 of a plain copy,") for line in lines
    )
    assert any(line.startswith("  goal met          comparing, with memcmp") for line in lines)
    run = Run("0.1", "device", "the data plane of cpu", 7, is_complete=True)
    page = device_page(Result(run, data_plane=plane))
    assert page.count(">missed<") == 3
    assert page.count(">not compared<") == 1
    assert Result(run, data_plane=plane).exit_code() is not Exit.WORSE_THAN_BASELINE
