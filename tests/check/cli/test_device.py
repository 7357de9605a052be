"""`kvproof device` as the owner of a machine calls it: its output, its exit codes and its files."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from kvproof.check.cli import device as command
from kvproof.check.cli.app import app
from kvproof.check.data_plane.end_to_end import comparing
from kvproof.check.data_plane.end_to_end.comparing import run_end_to_end
from kvproof.check.data_plane.end_to_end.fault_injection import FAULTS
from kvproof.check.data_plane.faults import catalogue, judging
from kvproof.check.data_plane.run import correctness
from kvproof.check.data_plane.run.correctness import CorrectnessConfig
from kvproof.check.data_plane.speed import bandwidth
from kvproof.check.data_plane.speed.bandwidth import BandwidthConfig
from kvproof.reports import device_page

QUICK = ("device", "--device", "cpu", "--layout", "two-planes", "--dtype", "bfloat16", "--budget", "100", "--seed", "5")

MOVERS = """
def right(caches, moves):
    for name, _, _, pairs in moves.lists():
        sources = caches.cpu_planes if name == "swap_in" else caches.gpu_planes
        targets = caches.cpu_planes if name == "swap_out" else caches.gpu_planes
        for source, target in pairs:
            for from_, to in zip(sources, targets):
                to[target].copy_(from_[source])

def off_by_one(caches, moves):
    blocks = caches.cpu_planes[0].shape[0]
    right(caches, type(moves)(tuple(((s + 1) % blocks, t) for s, t in moves.swap_in), moves.swap_out, moves.copy))
"""

needs_no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "movers.py").write_text(MOVERS)


def kvproof(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def stored(folder: str = ".kvproof") -> Any:
    return json.loads(Path(folder, "result.json").read_text())


@pytest.fixture
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run few mappings, faults and workloads, time little, and draw no plots: each of them has its own tests."""
    monkeypatch.setattr(
        correctness, "CorrectnessConfig", partial(CorrectnessConfig, mappings=("mixed", "heavy-swapping"))
    )
    monkeypatch.setattr(command, "TIMING_SECONDS_MAX", 0.1)
    monkeypatch.setattr(bandwidth, "NUM_TRIALS", 1)
    monkeypatch.setattr(bandwidth, "BandwidthConfig", partial(BandwidthConfig, num_pairs=2, num_places=2))
    monkeypatch.setattr(comparing, "run_end_to_end", partial(run_end_to_end, workloads=("swap",), faults=FAULTS[:2]))
    monkeypatch.setattr(judging, "FAULTS", catalogue.FAULTS[:6])
    for plot in ("speeds_plot", "costs_plot", "comparison_plot"):
        monkeypatch.setattr(device_page, plot, lambda drawn: "")


@pytest.mark.usefixtures("_briefly")
def test_a_right_machine_exits_with_0_and_its_document_serves_as_baseline() -> None:
    done = kvproof(*QUICK, "--executor", "block-copy", "--json", "before.json")
    assert done.exit_code == 0, done.output
    document = stored()
    checks = {check["id"]: check["verdict"] for check in document["checks"]}
    assert checks == {
        "data plane/swap-mapping/block-copy": "not refuted",
        "data plane/cow-copied/block-copy": "not refuted",
        "data plane/mapping-hazard-free/linter": "not refuted",
        "data plane/read-back/paged decoder": "not refuted",
    }
    plane = document["data_plane"]
    assert all(fault["is_caught"] for fault in plane["faults"])
    assert {fault["kind"] for fault in plane["faults"]} == {"bytes", "race", "mapping", "end to end"}
    assert {move["name"] for move in plane["bandwidth"]["moves"]} == {"block-copy"}
    assert {"torch", "processor", "cores usable"} <= document["run"]["host"].keys()
    assert Path(".kvproof/device.html").read_text().startswith("<!DOCTYPE html>")
    lines = done.output.splitlines()
    assert any(line.startswith("faults planted into this run, bytes: ") for line in lines)
    assert lines[-1].startswith("the data plane of cpu is not refuted: 4 properties hold as far as checked")

    before = json.loads(Path("before.json").read_text())
    for speed in before["data_plane"]["bandwidth"]["moves"]:
        speed["ratio"] = {name: 1000 * value for name, value in speed["ratio"].items()}
        speed["noise"] = 0.0
    Path("before.json").write_text(json.dumps(before))
    worse = kvproof(*QUICK, "--executor", "block-copy", "--baseline", "before.json", "--out", "b")
    assert worse.exit_code == 6, worse.output
    assert "slower than the baseline" in worse.output
    before["data_plane"]["bandwidth"]["device_name"] = "another processor"
    Path("other.json").write_text(json.dumps(before))
    other = kvproof(*QUICK, "--executor", "block-copy", "--baseline", "other.json", "--out", "c")
    assert other.exit_code == 4, other.output
    assert "never reached: compared with the baseline: block-copy" in other.output
    assert kvproof("report", "b").exit_code == 6


@pytest.mark.usefixtures("_briefly")
def test_a_wrong_executor_exits_with_1_and_its_bytes_are_named_with_their_origin() -> None:
    done = kvproof(*QUICK, "--executor", "movers.py:off_by_one")
    assert done.exit_code == 1, done.output
    document = stored()
    (refuted,) = [check for check in document["checks"] if check["verdict"] == "refuted"]
    assert refuted["property"] == "swap-mapping"
    assert "of the GPU pool" in refuted["text"]
    assert "of the CPU pool" in refuted["text"]
    failed = [case for case in document["data_plane"]["cases"] if case["status"] == "failed"]
    assert failed
    assert all(case["origins"] and case["histogram"] for case in failed)
    assert "No speed was measured: movers.py:off_by_one: a correctness case failed." in done.output
    assert "of the CPU pool" in Path(".kvproof/device.html").read_text()


@needs_no_cuda
def test_without_cuda_auto_says_that_the_cpu_is_used_and_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    done = kvproof("device", "--device", "cuda")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "torch finds no CUDA device; use --device cpu or --device auto" in done.stderr
    from kvproof.check.cli.device import settled_device

    chosen, facts, note = settled_device("auto")
    assert (chosen, facts["device"]) == ("cpu", "cpu")
    assert note.startswith("There is no CUDA device, so the CPU was used")
    assert settled_device("cpu")[2] == ""
    gate = kvproof("verify", "--device", "cuda")
    assert (gate.exit_code, gate.stderr) == (done.exit_code, done.stderr)


def test_a_torch_that_is_too_old_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    done = kvproof("device")
    assert done.exit_code == 2
    assert "torch 2.10.0 is too old for the data plane; install torch 2.11 or newer" in done.stderr
