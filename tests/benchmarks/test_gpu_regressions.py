"""Planted regressions of the data plane are planted, and a run that ends otherwise than it must is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_movers, gpu_regressions
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.world import World
from kvproof.check.data_plane.steps.moves import Moves
from kvproof.impl.kv_cache_engine import BlockMover

CPU = torch.device("cpu")
PAIRS = tuple((block, 50 + block) for block in range(40))
MOVES = Moves(swap_in=PAIRS, swap_out=PAIRS)


def num_wrong(monkeypatch: pytest.MonkeyPatch, planted: str) -> int:
    """The wrong rows after one step of the mover."""
    monkeypatch.setattr(gpu_movers, "PLANTED", planted)
    world = World(Geometry(Layout.TWO_PLANES, "int8", 4, 2, 16, 2, 100, 100), CPU)
    world.expect(MOVES)
    gpu_movers.move(world.caches(), MOVES)
    return sum(map(len, world.wrong().values()))


def test_a_mover_is_right_or_slow_or_wrong_as_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert num_wrong(monkeypatch, "") == 0
    assert num_wrong(monkeypatch, "slow") == 0
    assert num_wrong(monkeypatch, "wrong") == 2 * 2 * 2 * 2 * 4  # pairs, lists, layers, parts, slots


def test_a_quarter_of_the_copies_is_made_twice_if_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    monkeypatch.setattr(BlockMover, "swap_in", lambda self, pairs: moved.append(len(pairs)))
    monkeypatch.setattr(BlockMover, "swap_out", lambda self, pairs: None)
    num_wrong(monkeypatch, "slow")
    assert moved == [40, 10]


def test_each_run_must_end_as_planned_and_what_is_slower_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = {"baseline": 0, "unchanged": 0, "slower": 6}

    def run(one: gpu_regressions.Planted, device: str, out: Path, baseline: Path | None) -> int:
        assert (baseline is None) == (one.name == "baseline")
        compared = {"mapping": "swap in", "change": -0.2, "is_worse": one.name == "slower"}
        (out / f"{one.name}.json").write_text(json.dumps({"data_plane": {"comparisons": [compared]}}))
        return codes[one.name]

    monkeypatch.setattr(gpu_regressions, "run", run)
    assert gpu_regressions.main(["--device", "cpu", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "slower: exit code 6, 6 wanted; slower: swap in -20 %" in printed
    assert "unchanged: exit code 0, 0 wanted\n" in printed
    assert "3 of 3 runs ended as they must" in printed
    codes["slower"] = 0
    assert gpu_regressions.main(["--device", "cpu", "--out", str(tmp_path)]) == 1
    assert "2 of 3 runs ended as they must" in capsys.readouterr().out
