"""The simulated CUDA device: late bytes and races are found, and right code passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

import numpy as np
import pytest
import torch

from kvproof.check.data_plane.compare import compare, triton_verify
from kvproof.check.data_plane.executors import BUILT_IN, Executor
from kvproof.check.data_plane.mappings import scenario
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.run.harness import DEFAULT_STREAM, OWN_STREAM, run_case
from kvproof.check.data_plane.run.results import CaseResult, FindingKind
from kvproof.check.data_plane.simulated_cuda import new_races, simulated_cuda
from kvproof.check.data_plane.simulated_cuda.accesses import Accesses, words_of, words_of_rows
from kvproof.check.data_plane.steps.moves import Moves
from kvproof.check.data_plane.steps.ordering import HOST, LOGS, Cell, EventLog, LogCase
from kvproof.impl import row_copier


@pytest.fixture
def accesses() -> Iterator[Accesses]:
    with simulated_cuda() as found:
        yield found


def case_with(move: Callable[[Caches, Moves], object], stream: str = DEFAULT_STREAM) -> CaseResult:
    """A case of an executor on the simulated device."""
    executor = Executor("tried", lambda caches: lambda moves: move(caches, moves))
    geometry = Geometry(Layout.NHD, "float16", 4, 2, 16, 2, 12, 9)
    return run_case(executor, geometry, scenario("mixed", 0, 12, 9, 4), torch.device("cuda"), stream)


class OnDevice:
    """The interface of an event log, carried out on the simulated device. A cell is a row of a pool."""

    def __init__(self) -> None:
        self.streams: dict[str, torch.cuda.Stream] = {}
        self.events: dict[str, torch.cuda.Event] = {}
        self.pools = {
            "the GPU pool": torch.empty((64, 4), dtype=torch.int64, device="cuda"),
            "the CPU pool": torch.empty((64, 4), dtype=torch.int64, pin_memory=True),
            "the pinned buffers": torch.empty((64, 4), dtype=torch.int64, pin_memory=True),
        }

    def at(self, cell: Cell) -> torch.Tensor:
        row: torch.Tensor = self.pools[cell[0]][cell[1]]
        return row

    def on(self, actor: str) -> torch.cuda.Stream:
        return self.streams.setdefault(actor, torch.cuda.Stream())  # type: ignore[no-untyped-call]

    def work(self, actor: str, name: str, reads: Iterable[Cell] = (), writes: Iterable[Cell] = ()) -> None:
        if actor == HOST:
            for cell in reads:
                self.at(cell).sum()
            for cell in writes:
                self.at(cell).fill_(7)
            return
        with torch.cuda.stream(self.on(actor)):
            values = [self.at(cell).sum() for cell in reads]
            for cell in writes:
                self.at(cell).fill_(7) if not values else self.at(cell).add_(values[0])

    def copy(self, actor: str, name: str, source: Cell, target: Cell) -> None:
        with torch.cuda.stream(self.on(actor)):
            self.at(target).copy_(self.at(source), non_blocking=True)

    def batch(self, actor: str, name: str, pairs: Iterable[tuple[Cell, Cell]]) -> None:
        for source, target in pairs:
            self.copy(actor, name, source, target)

    def record(self, actor: str, event: str) -> None:
        self.events[event] = self.on(actor).record_event()

    def wait(self, actor: str, event: str) -> None:
        if actor == HOST:
            self.events[event].synchronize()
        else:
            self.on(actor).wait_event(self.events[event])


ONE_CALL = ("chained-batch", "doubled-batch")  # the copies of one call: torch starts each copy by a call of its own


@pytest.mark.parametrize("log", [log for log in LOGS if log.name not in ONE_CALL], ids=lambda log: log.name)
def test_the_device_finds_the_races_that_the_rules_of_event_logs_find(log: LogCase, accesses: Accesses) -> None:
    log.write(cast(EventLog, OnDevice()))
    torch.cuda.synchronize()
    assert bool(accesses.races) == log.has_race


def test_a_copy_moves_its_bytes_when_something_waits_for_it(accesses: Accesses) -> None:
    source, target = torch.ones(4, dtype=torch.int64, device="cuda"), torch.zeros(4, dtype=torch.int64).pin_memory()
    target.copy_(source, non_blocking=True)
    assert target.tolist() == [0] * 4
    torch.cuda.synchronize()
    assert target.tolist() == [1] * 4


def test_a_blocking_copy_and_a_question_for_values_wait(accesses: Accesses) -> None:
    source = torch.arange(4, device="cuda") * 2
    assert source.cpu().tolist() == [0, 2, 4, 6]
    assert (source + 1).sum().item() == 16
    assert (source > 2).nonzero().flatten().tolist() == [2, 3]
    assert accesses.races == []


def test_memory_of_the_host_that_is_not_locked_is_read_by_the_call(accesses: Accesses) -> None:
    source, target = torch.ones(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64, device="cuda")
    target.copy_(source, non_blocking=True)
    source.fill_(9)
    assert (target.tolist(), accesses.races) == ([1] * 4, [])


def test_tensors_of_two_devices_in_one_call_are_refused_as_by_torch(accesses: Accesses) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3, device="cuda") + torch.ones(3)


@pytest.mark.parametrize("stream", [DEFAULT_STREAM, OWN_STREAM])
@pytest.mark.parametrize("name", ["engine", "index-copy"])
def test_our_executors_order_all_their_work(name: str, stream: str, accesses: Accesses) -> None:
    result = case_with(lambda caches, moves: BUILT_IN[name].prepare(caches)(moves), stream)
    assert result.finding is None
    assert result.num_steps > 5


def test_an_executor_that_returns_before_its_stream_has_moved_the_bytes_is_late(accesses: Accesses) -> None:
    def late(caches: Caches, moves: Moves) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            BUILT_IN["index-copy"].prepare(caches)(moves)

    finding = case_with(late).finding
    assert finding is not None
    assert finding.kind in (FindingKind.LATE, FindingKind.WRONG_BYTES)


def test_an_executor_whose_stream_does_not_wait_for_earlier_work_has_a_race(accesses: Accesses) -> None:
    def unordered(caches: Caches, moves: Moves) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for plane in caches.gpu_planes:  # the step before may still read what is written here
                plane[0].copy_(plane[0].clone())
        torch.cuda.current_stream().wait_stream(stream)
        caches.gpu_planes[0][0].add_(0)
        with torch.cuda.stream(stream):
            caches.gpu_planes[0][0].add_(0)
        stream.synchronize()
        BUILT_IN["engine"].prepare(caches)(moves)

    finding = case_with(unordered).finding
    assert finding is not None
    assert finding.kind is FindingKind.RACE
    assert "nothing orders add_ on stream 1 and add_ on the default stream" in finding.text


def test_the_words_of_a_tensor_are_those_that_its_elements_touch() -> None:
    memory, words = torch.zeros(64, dtype=torch.int16), np.arange(16)

    def covered(part: torch.Tensor) -> list[int]:
        return sorted(set(words[words_of(part)].tolist()))

    assert covered(memory) == list(range(16))
    assert covered(memory[6:9]) == [1, 2]
    assert covered(memory.as_strided((3, 2), (20, 1), 1)) == [0, 5, 10]
    assert covered(memory.as_strided((2, 3), (12, 1), 3)) == [0, 1, 3, 4]
    assert covered(memory.view(8, 8)[:, 0]) == list(range(0, 16, 2))
    assert covered(memory[:1].expand(5)) == [0]
    assert covered(memory[:0]) == []

    def rows(part: torch.Tensor, *numbers: int) -> list[int]:
        return sorted(set(words[words_of_rows(part, np.array(numbers, np.int64))].tolist()))

    assert rows(memory.view(8, 8), 2, 0, 2) == [0, 1, 4, 5]
    assert rows(memory.view(32, 2), 3, 0) == [0, 1]
    assert rows(memory.view(8, 2, 4).movedim(1, 0), 1) == list(range(1, 16, 2))
    assert rows(memory) == []


def test_races_are_found_between_rows_of_an_index_and_after_all_streams_were_awaited(accesses: Accesses) -> None:
    memory, rows = torch.zeros((8, 2), dtype=torch.int64, device="cuda"), torch.tensor([1, -2], device="cuda")
    torch.cuda.synchronize()
    old = torch.cuda.current_stream().record_event()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    memory[rows] = memory[:2].clone()
    with torch.cuda.stream(stream):
        stream.wait_event(old)  # this is over, and orders nothing
        memory[2].add_(1)
    torch.cuda.synchronize()
    assert accesses.races == []
    memory[rows] = memory[:2].clone()
    with torch.cuda.stream(stream):
        stream.wait_event(old)
        memory[6].add_(1)
    torch.cuda.synchronize()
    assert [str(one) for one in accesses.races] == [
        "nothing orders __setitem__ on the default stream and add_ on stream 1, and they use the same memory"
    ]


def test_after_a_simulation_torch_has_its_own_cuda_again() -> None:
    before = torch.cuda.synchronize, torch.cuda.is_available()
    with simulated_cuda():
        assert torch.cuda.is_available()
    assert (torch.cuda.synchronize, torch.cuda.is_available()) == before
    assert new_races() == []


def test_no_kernel_is_compiled_for_a_simulated_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a machine with a GPU that would abort the process.
    def compiles(*given: object) -> None:
        raise AssertionError("a kernel was tried")

    monkeypatch.setattr(triton_verify, "bad_rows", compiles)
    monkeypatch.setattr(row_copier.RowCopier, "move", compiles)
    with simulated_cuda():
        memory = torch.zeros(3, 4, dtype=torch.int64, device="cuda")
        assert triton_verify.refusal(memory.device) == row_copier.refusal(memory.device) != ""
        assert row_copier.row_copier([memory], [memory]) is None
        assert compare.comparer_for(memory.device) is compare.by_device
