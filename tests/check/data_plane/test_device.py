"""A device that has no memory left, or that does not come to rest."""

import pytest
import torch

from kvproof.check.data_plane.device import broken, is_out_of_memory, wait_for
from kvproof.check.hosts.time_limit import time_limit
from kvproof.check.protocol.finding import Finding


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
