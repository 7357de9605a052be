"""Speeds: what is timed is proven first, ratios are to plain copies, and slower than the baseline is worse."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from kvproof.check.data_plane import device
from kvproof.check.data_plane.executors import BUILT_IN
from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.world import Caches, World
from kvproof.check.data_plane.speed import bandwidth, trial
from kvproof.check.data_plane.speed.bandwidth import BandwidthConfig, NoSpeeds, run_bandwidth
from kvproof.check.data_plane.speed.stopwatch import noise, spread
from kvproof.check.data_plane.speed.trial import mappings
from kvproof.check.data_plane.steps.moves import Moves
from kvproof.reports.data_plane_result import Bandwidth, Speed, Spread
from kvproof.reports.device_baseline import compared, difference, not_compared


def loop(times: int = 1, forgets: bool = False) -> Executor:
    """Copies block by block, each so many times; or forgets the last pair of every copy."""

    def prepare(caches: Caches) -> MoveBlocks:
        def move(moves: Moves) -> None:
            for name, _, _, pairs in moves.lists():
                sources = caches.cpu_planes if name == "swap_in" else caches.gpu_planes
                targets = caches.cpu_planes if name == "swap_out" else caches.gpu_planes
                for source, target in pairs[: -1 if forgets and name == "copy" else None]:
                    for from_plane, to_plane in zip(sources, targets, strict=True):
                        for _ in range(times):
                            to_plane[target].copy_(from_plane[source])

        return move

    return Executor("loop", prepare)


def measured(*executors: Executor) -> Bandwidth:
    return run_bandwidth(BandwidthConfig(executors, seconds=0.1, num_pairs=4, num_places=4))


def test_every_move_and_every_way_to_compare_is_timed_against_the_plain_copy_of_its_direction() -> None:
    speeds = measured(loop())
    directions = {"swap in": "CPU pool to GPU pool", "swap out": "GPU pool to CPU pool", "copy": "within the GPU pool"}
    assert {(one.mapping, one.reference) for one in speeds.moves} == {
        (f"{kind}, {order}", direction) for kind, direction in directions.items() for order in ("in a row", "scattered")
    }
    assert {(one.name, one.mapping) for one in speeds.verification} == {("memcmp", "verify"), ("torch", "verify")}
    assert {one.ratio.median for one in speeds.references} == {1.0}
    assert all(
        one.payload_bytes == 4 * speeds.block_bytes and one.traffic_bytes == 2 * one.payload_bytes
        for one in speeds.moves
    )
    assert all(one.traffic_bytes == one.payload_bytes for one in speeds.verification)
    assert all(0 < one.gb_per_second.p5 <= one.gb_per_second.median <= one.gb_per_second.p95 for one in speeds.moves)
    assert len(speeds.host_costs) == 6
    assert all(cost.microseconds_per_pair.median > 0 for cost in speeds.host_costs)
    assert speeds.skipped == []
    assert speeds.num_rounds >= 15


def test_large_calls_are_timed_for_the_engine_and_for_gathering_and_left_out_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = BandwidthConfig(
        (BUILT_IN["engine"], BUILT_IN["index-copy"], loop()), seconds=0.1, num_pairs=2, num_places=2, large_bytes=2**18
    )
    speeds = run_bandwidth(config)
    large = [one for one in speeds.moves if one.mapping.endswith(", large")]
    assert {one.name for one in large} == {"engine", "index-copy"}
    assert len(large) == 2 * 4
    assert {one.payload_bytes for one in large} == {2 * 2**18}  # keys and values each have a plane
    assert {one.reference for one in large} == {"GPU pool to CPU pool, large", "within the GPU pool, large"}
    assert {goal.name: goal.is_met is None for goal in speeds.goals}["engine, large calls"] is False
    monkeypatch.setattr(bandwidth, "free_bytes", lambda device: 2**24)
    short = run_bandwidth(replace(config, large_bytes=2**22))
    assert not [one for one in short.moves if "large" in one.mapping]
    assert short.skipped == ["large calls: pools of 32 MiB need twice that, and 16 MiB are free"]


def test_where_memory_is_short_less_is_timed_and_that_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    config = BandwidthConfig((loop(),), num_pairs=64, num_places=4)
    # Three times 2 x 64 x 4 blocks of 128 KiB and some guards are 192 MiB; twice as much shall be free.
    skipped: list[str] = []
    monkeypatch.setattr(bandwidth, "free_bytes", lambda device: 400 * 2**20)
    assert config.fitting(skipped) is config
    monkeypatch.setattr(bandwidth, "free_bytes", lambda device: 200 * 2**20)
    assert (config.fitting(skipped), skipped) == (replace(config, num_places=2), [])  # nothing that is reported changes
    monkeypatch.setattr(bandwidth, "free_bytes", lambda device: 30 * 2**20)
    assert config.fitting(skipped) == replace(config, num_places=1, num_pairs=16)
    assert skipped == ["calls of 64 blocks: there is memory for 16"]
    monkeypatch.setattr(bandwidth, "free_bytes", lambda device: 2**20)
    with pytest.raises(NoSpeeds, match="even calls of 8 blocks need 12 MiB more memory"):
        config.fitting(skipped)
    gpu = replace(config, device="cuda").on_cuda()  # 2 x 256 x 2 blocks of 512 KiB, twice there and once here
    monkeypatch.setattr(bandwidth, "free_bytes", lambda device: (2 if device == "cuda" else 9) * 2**30)
    assert gpu.fitting(skipped) == replace(gpu, num_places=1)
    monkeypatch.setattr(bandwidth, "free_bytes", lambda device: (9 if device == "cuda" else 1) * 2**30)
    assert gpu.fitting(skipped) == replace(gpu, num_places=1)


def test_what_was_timed_with_other_calls_is_not_compared() -> None:
    before = measured(loop())
    smaller = replace(before, moves=[replace(one, payload_bytes=1) for one in before.moves])
    assert [one.name for one in compared(smaller, before)] == ["memcmp", "torch"]
    assert len(not_compared(smaller, before)) == 6


def test_later_trials_compare_once_for_an_executor_that_was_right(monkeypatch: pytest.MonkeyPatch) -> None:
    compared_worlds: list[World] = []

    def wrong(world: World) -> object:
        compared_worlds.append(world)
        return of_world(world)

    of_world = World.wrong
    monkeypatch.setattr(World, "wrong", wrong)
    measured(loop())
    counts = [compared_worlds.count(world) for world in dict.fromkeys(compared_worlds)]
    assert counts[:3] == [6, 1, 1]


def test_an_executor_that_is_far_too_slow_is_skipped_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "PROOF_SECONDS_MAX", 0.0)
    speeds = measured(loop())
    assert speeds.moves == []
    assert speeds.skipped == ["loop: its moves could not be checked within 0 s, so it was not timed"]


def test_a_move_that_leaves_wrong_bytes_is_not_timed() -> None:
    speeds = measured(loop(forgets=True))
    assert {one.mapping.split(",")[0] for one in speeds.moves} == {"swap in", "swap out"}
    assert [reason.split(":")[0] for reason in speeds.skipped] == ["loop, copy, in a row", "loop, copy, scattered"]
    assert "rows were wrong, so it was not timed" in speeds.skipped[0]


def test_copying_everything_twenty_times_is_worse_than_the_baseline_and_not_the_other_way_round() -> None:
    before, now = measured(loop()), measured(loop(times=20))
    for run in (before, now):  # a busy machine's noise must not decide a test
        run.drift = 0.0
        for one in (*run.moves, *run.verification):
            one.noise = 0.05
    assert {one.mapping for one in compared(now, before) if one.is_worse and one.name == "loop"} == {
        one.mapping for one in now.moves
    }
    assert not [one for one in compared(before, now) if one.is_worse and one.name == "loop"]


def test_a_slowdown_smaller_than_the_noise_is_not_worse() -> None:
    before, now = speeds_of(0.50), speeds_of(0.45)
    (row,) = compared(now, before)
    assert (round(row.change, 3), row.band, row.is_worse) == (-0.1, 0.1, False)
    (row,) = compared(speeds_of(0.44), before)
    assert row.is_worse
    (row,) = compared(speeds_of(0.44, noise=0.15), before)
    assert not row.is_worse


def test_a_baseline_of_another_device_or_layout_is_not_compared() -> None:
    before, now = speeds_of(0.5), speeds_of(0.5)
    before.layout = "nhd"
    assert difference(now, before) == "its layout is nhd, but this run has two-planes"
    with pytest.raises(ValueError, match="its layout is nhd"):
        compared(now, before)
    before.moves[0].name = "other"
    assert not_compared(now, before) == ["other, copy, scattered"]


def speeds_of(ratio: float, noise: float = 0.01) -> Bandwidth:

    speed = Speed(
        "engine", "copy, scattered", "within the GPU pool", 8, 800, 1600, Spread(5, 4, 6), Spread(ratio, 0, 1), noise
    )
    return Bandwidth("cpu", "a processor", "two-planes", "bfloat16", 100, 30, [], [speed], [], [], 1.0, 0.0)


def test_the_mappings_that_are_timed_touch_no_block_twice_and_never_both_ways() -> None:
    geometry = Geometry(Layout.TWO_PLANES, "uint8", 1, 1, 8, 1, 24, 24)
    for places in mappings(geometry, 4, 3, seed=1).values():
        lists: list[tuple[tuple[int, int], ...]] = [one.swap_in or one.swap_out or one.copy for one in places]
        pairs = [pair for listed in lists for pair in listed]
        assert (len(places), len(pairs)) == (3, 12)
        assert len({source for source, _ in pairs}) == len({target for _, target in pairs}) == 12
        if places[0].copy:
            assert not {source for source, _ in pairs} & {target for _, target in pairs}


def test_noise_is_three_standard_errors_or_the_distance_of_the_trials() -> None:
    alike = [np.array([0.99, 1.0, 1.01] * 30) for _ in range(3)]
    assert noise(alike) == pytest.approx(3 * 1.2533 * 1.4826 * 0.01 / np.sqrt(270), rel=1e-3)
    assert noise([alike[0], alike[1], alike[2] + 0.2]) == pytest.approx(0.2 / 1.0, rel=0.02)
    assert spread(np.arange(101.0)) == spread(np.arange(101.0)[::-1])
    assert (spread(np.arange(101.0)).p5, spread(np.arange(101.0)).p95) == (5, 95)


@pytest.mark.parametrize("version", ["2.10.1", "1.13.0+cpu"])
def test_a_torch_that_is_too_old_is_refused_with_what_to_do(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVPROOF_ANY_TORCH", raising=False)
    with pytest.raises(device.UnfitTorch, match=r"install torch 2\.11 or newer"):
        device.require_torch(version)


def test_an_old_torch_is_taken_on_a_machine_that_can_have_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_ANY_TORCH", "1")
    device.require_torch("2.4.0")


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "3.0", "mine"])
def test_a_torch_that_is_new_enough_or_self_made_is_taken(version: str) -> None:
    device.require_torch(version)


def test_the_environment_names_processor_cores_and_torch() -> None:
    seen = device.environment(torch.device("cpu"))
    assert {"torch", "processor", "cores usable", "device", "pinned memory"} <= seen.keys()
    assert all(seen.values())
