"""A device that has no memory left, or that does not come to rest.

Facts of a machine: read without privilege, and not known where they cannot be read.
"""

import stat
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from kvproof.check.data_plane import device as module
from kvproof.check.data_plane.device import (
    _gpu_facts,
    _numa_node,
    _queried,
    broken,
    host_facts,
    is_out_of_memory,
    wait_for,
)
from kvproof.check.hosts.time_limit import time_limit
from kvproof.check.protocol.finding import Finding

ADDRESS = "0000:3b:00.0"


class Busy:
    """A stream with work for so many questions."""

    def __init__(self, num_questions: float) -> None:
        self.left = num_questions

    def query(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_stream_is_waited_for_until_its_work_has_ended() -> None:
    stream = Busy(3)
    wait_for(stream)
    assert stream.left == -1


def test_a_stream_whose_work_does_not_end_is_given_up_when_the_time_is_over() -> None:
    with pytest.raises(Finding, match="no answer within"), time_limit(0.05):
        wait_for(Busy(float("inf")))


def test_every_way_to_run_out_of_memory_is_one() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60, dtype=torch.int8)
    assert is_out_of_memory(refused.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))  # of pinned memory
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_a_device_is_broken_if_waiting_for_it_fails_or_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(device: torch.device) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nSearch for it.")

    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "synchronize", fails)
    assert broken(torch.device("cpu")) == ""
    assert broken(gpu) == "RuntimeError: CUDA error: an illegal memory access was encountered"
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert broken(gpu) == ""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: wait_for(Busy(2000)))
    assert broken(gpu, 0.02) == "its work has not ended after 0.02 s"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /sys."""
    monkeypatch.setattr(module, "SYSTEM", tmp_path)
    return tmp_path


def write(folder: Path, **contents: str) -> None:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_text(f"{content}\n")


def test_a_processor_reports_its_clocks_nodes_and_memory_errors(system: Path) -> None:
    write(system / "devices/system/cpu/cpu0/cpufreq", scaling_cur_freq="2100000", cpuinfo_max_freq="3500000")
    write(system / "devices/system/node", online="0-1")
    write(system / "devices/system/edac/mc/mc0", ce_count="3", ue_count="0")
    write(system / "devices/system/edac/mc/mc1", ce_count="4", ue_count="1")
    facts = host_facts(torch.device("cpu"), "alpha")
    assert facts["host"] == "alpha"
    assert facts["clocks"] == "2100 MHz (at most 3500)"
    assert facts["NUMA node"] == "0-1 (of the machine)"
    assert facts["ECC errors"] == "7 corrected, 1 uncorrected"
    assert facts["PCIe link"] == "not known: the blocks lie in main memory"


def test_what_a_system_does_not_report_is_not_known_with_the_reason(system: Path) -> None:
    facts = host_facts(torch.device("cpu"), "alpha")
    assert facts["NUMA node"] == "not known: the system does not report them"
    assert facts["ECC errors"] == "not known: no memory controller reports errors here"
    assert all(facts.values())


def test_a_gpu_reports_what_nvidia_smi_knows_and_not_known_for_the_rest(system: Path) -> None:
    answers = {
        "pcie.link.gen.current": ["4", "8", "5", "16"],
        "clocks.sm": ["1980", "1980", "2619", "2619"],
        "ecc.errors.corrected.aggregate.total": ["[N/A]", "[N/A]"],
    }

    def ask(address: str, names: Iterable[str]) -> list[str]:
        assert address == ADDRESS
        return answers[next(iter(names))]

    assert _gpu_facts(ADDRESS, ask) == {
        "PCIe link": "generation 4 x8 (at most generation 5 x16)",
        "clocks": "processors 1980 MHz (at most 1980), memory 2619 MHz (at most 2619)",
        "ECC errors": "not known: nvidia-smi reports no ecc.errors.corrected.aggregate.total",
    }


def test_without_nvidia_smi_the_kernel_reports_the_link(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    folder = system / "bus/pci/devices" / ADDRESS
    write(folder, current_link_speed="16.0 GT/s PCIe", current_link_width="8", numa_node="1")
    assert _gpu_facts(ADDRESS, _queried)["PCIe link"] == "not known: nvidia-smi is not installed"
    for name, content in (("max_link_speed", "32.0 GT/s PCIe"), ("max_link_width", "16")):
        (folder / name).write_text(content)
    facts = _gpu_facts(ADDRESS, _queried)
    assert facts["PCIe link"] == "16.0 GT/s PCIe x8 (at most 32.0 GT/s PCIe x16)"
    assert facts["clocks"] == "not known: nvidia-smi is not installed"
    assert _numa_node(ADDRESS) == "1"
    (folder / "numa_node").write_text("-1")
    assert _numa_node(ADDRESS) == "not known: the system does not report the node of the GPU"
    assert _gpu_facts("", _queried)["ECC errors"] == "not known: this torch does not report the PCI address of the GPU"


def test_an_error_of_nvidia_smi_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Unable to determine the device handle'\nexit 6\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="nvidia-smi: Unable to determine the device handle"):
        _queried(ADDRESS, ("clocks.sm",))
