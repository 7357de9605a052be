"""Lines wait for page ids that are on a simulated device, and are written whole and in order."""

from array import array
from collections.abc import Iterator, Sequence

import pytest
import torch

from kvproof.check.data_plane.simulated_cuda import simulated_cuda
from kvproof.check.recording.handover import Line
from kvproof.check.recording.ring import Buffer
from kvproof.check.recording.sglang import waiting_lines
from kvproof.check.recording.sglang.raw_lines import SLOTS, RadixCall
from kvproof.check.recording.sglang.waiting_lines import WaitingLines


@pytest.fixture(autouse=True)
def arrived(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether copies have arrived when somebody asks; on the simulated device, they arrive when somebody waits."""
    arrived = [False]
    monkeypatch.setattr(waiting_lines.WaitingCopy, "has_arrived", lambda copy: arrived[0])
    with simulated_cuda():
        yield arrived


class Written:
    """Lines that are written to a list, and lines that are added with the page ids of the device."""

    def __init__(self) -> None:
        self.done: list[tuple[int, list[int]]] = []
        self.lines = WaitingLines(self.write)

    def write(self, line: Line, buffers: Sequence[Buffer]) -> None:
        assert isinstance(line, RadixCall)
        assert line.form in ("", "l")
        self.done.append((line.n, line.numbers or array("l", b"".join(buffers)).tolist()))

    def add(self, number: int, tensor: torch.Tensor | None = None) -> None:
        line = RadixCall(number, "alloc")
        if tensor is not None:
            self.lines.fill(line, tensor, SLOTS, slice(None, None, 2))
        self.lines.add(line)


def on_device(*ids: int) -> torch.Tensor:
    return torch.tensor(ids, device="cuda")


def test_lines_wait_for_the_stream_and_keep_their_order(arrived: list[bool]) -> None:
    written = Written()
    ids = on_device(8, 9, 4, 5)
    written.add(1, ids)
    ids.fill_(0)  # the server goes on; the copy was queued before
    written.add(2)
    in_main_memory = torch.tensor([6, 7])
    written.add(3, in_main_memory)
    in_main_memory.fill_(0)
    assert written.done == []
    arrived[0] = True
    written.add(4)
    assert written.done == [(1, [8, 4]), (2, []), (3, [6]), (4, [])]


def test_all_lines_are_written_at_the_end() -> None:
    written = Written()
    written.add(1, on_device(2, 3))
    written.add(2, on_device(4, 5))
    written.lines.write_all()
    assert written.done == [(1, [2]), (2, [4])]


def test_the_oldest_line_is_waited_for_when_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_lines, "NUM_WAITING_MAX", 3)
    written = Written()
    for number in range(1, 6):
        written.add(number, on_device(2 * number))
        assert len(written.lines) <= 3
    assert written.done[0] == (1, [2])


def test_ids_in_main_memory_are_written_at_once() -> None:
    written = Written()
    ids = torch.tensor([8, 9])
    written.add(1, ids)
    ids.fill_(0)
    assert written.done == [(1, [8])]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("part", [slice(None), slice(0, 190, 2), slice(0, 190, 16), slice(-1, None)])
def test_any_part_of_many_ids_is_written(part: slice, place: str, arrived: list[bool]) -> None:
    written, line = Written(), RadixCall(1, "insert")
    ids = torch.arange(200, device=place)
    written.lines.fill(line, ids, SLOTS, part)
    written.lines.add(line)
    written.lines.write_all()
    assert written.done == [(1, list(range(200))[part])]
