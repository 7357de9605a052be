"""KV that comes from elsewhere or is sent there while steps run: its blocks are held until the transfer is over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.counterexample.steps import describe_steps
from kvproof.check.counterexample.trace_schema import operations_of
from kvproof.check.hunting.findings import Saving
from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Assumption, Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, Load, ScheduledStep, SchedulerConfig
from kvproof.check.runs.store import Store
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.spec.trace import Operation, Trace


class Request:
    """A sequence of the scheduler below; `coming`: tokens whose KV is elsewhere. It holds blocks while it is `busy`."""

    def __init__(self, number: int, seq: int, known: int, limit: int, coming: int, is_sent: bool) -> None:
        self.number, self.seq, self.known, self.limit = number, seq, known, limit
        self.coming, self.is_sent = coming, is_sent
        self.computed = 0
        self.is_loading = self.is_busy = self.is_over = self.is_leaving = False
        self.table: list[int] = []


class Moves:
    """First come, first served, each with room for all that it will ever need."""

    name = "moves"
    capabilities = Capabilities(transfers=True)
    assumptions: tuple[Assumption, ...] = ()

    def open(self, config: SchedulerConfig) -> None:
        if config.num_host_blocks or config.watermark or config.window:
            raise Unsupported("blocks of one kind only")
        self.config = config
        self.free = list(range(config.num_gpu_blocks))
        self.requests: dict[int, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.step: list[Request] = []
        self.elsewhere_next = 0, False

    def elsewhere(self, request: int, num_tokens: int, is_sent: bool) -> None:
        self.elsewhere_next = num_tokens, is_sent

    def add_request(
        self, request: int, seqs: list[int], tokens: list[int], key: Any, images: Any, max_tokens: int, encoder: Any
    ) -> None:
        limit = max(len(tokens) + 1, min(len(tokens) + max_tokens, self.config.max_model_len))
        coming, is_sent = self.elsewhere_next
        self.elsewhere_next = 0, False
        new = Request(request, seqs[0], len(tokens), limit, coming if coming < len(tokens) else 0, is_sent)
        self.requests[seqs[0]] = new
        self.waiting.append(new)

    def abort(self, request: int) -> None:
        self.end(next(r for r in self.requests.values() if r.number == request))

    def end(self, request: Request) -> None:
        request.is_over = True
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)
        if not (request.is_busy or request.is_loading):
            self.release(request)

    def release(self, request: Request) -> None:
        self.free += request.table
        request.table = []
        self.requests.pop(request.seq, None)

    def schedule(self) -> ScheduledStep:
        size, budget = self.config.block_size, self.config.max_num_batched_tokens
        ignored = [r for r in self.waiting if r.known > self.config.max_model_len]
        failed = [r for r in self.waiting if r not in ignored and -(-r.limit // size) > self.config.num_gpu_blocks]
        for request in ignored + failed:
            self.end(request)
        chunks, loads = [], []
        planned_checks = sum(-(-r.limit // size) - len(r.table) for r in self.running)
        while self.waiting and len(self.running) < self.config.max_num_seqs:
            request = self.waiting[0]
            if -(-request.limit // size) + planned_checks > len(self.free):
                break
            planned_checks += -(-request.limit // size)
            self.running.append(self.waiting.pop(0))
            request.is_loading = request.coming > 0
            if request.is_loading:
                self.extend(request, request.coming)
                planned_checks -= len(request.table)
                loads.append(Load(request.seq, 0, request.coming))
                request.computed = request.coming
        for request in self.running:
            start, stop = request.computed, request.known
            if self.may_run(request) and stop - start <= budget:
                budget -= stop - start
                self.extend(request, stop)
                chunks.append(Chunk(request.seq, start, stop))
                request.computed, request.is_busy = stop, True
                self.step.append(request)
        return ScheduledStep(
            chunks, ignored=[r.number for r in ignored], failed=[r.number for r in failed], loads=loads
        )

    def may_run(self, request: Request) -> bool:
        return not request.is_loading

    def extend(self, request: Request, stop: int) -> None:
        while len(request.table) * self.config.block_size < stop:
            request.table.append(self.free.pop(0))

    def launch(self) -> None:
        pass

    def arrived(self, sent: list[int], received: list[int]) -> None:
        for seq in (*sent, *received):
            request = self.requests[seq]
            request.is_loading = request.is_busy = False
            if request.is_over:
                self.release(request)

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        step, self.step = self.step, []
        for request in step:
            request.is_busy = False
            request.known += 1
            if request.is_over:
                self.release(request)
            elif request.seq in finished:
                request.is_busy = request.is_sent
                self.end(request)

    def observe(self) -> Observation:
        in_step = {r.seq for r in self.step}
        tables = {
            r.seq: [r.table[:]] for r in self.requests.values() if r.table and (not r.is_over or r.seq in in_step)
        }
        return Observation(tables, (len(self.free), 0), (), None, self.free[:])


class SendsAborted(Moves):
    """What it computed of an aborted request is sent too. The blocks are held until load, step and send are over."""

    capabilities = Capabilities(transfers=True, sends_aborted=True)

    def abort(self, request: int) -> None:
        leaving = next(r for r in self.requests.values() if r.number == request)
        leaving.is_leaving = self.config.sends_aborted and leaving.is_sent and bool(leaving.table)
        self.end(leaving)

    def arrived(self, sent: list[int], received: list[int]) -> None:
        for seq in {*sent, *received}:
            request = self.requests[seq]
            request.is_loading = request.is_loading and seq not in received
            if seq in sent:
                request.is_leaving = request.is_busy = False
            if request.is_over:
                self.release(request)

    def release(self, request: Request) -> None:
        if not (request.is_leaving or request.is_loading or request in self.step):
            super().release(request)


class ForgetsTheOtherTransfer(SendsAborted):
    """The first of two transfers that is over gives up the blocks of both."""

    def arrived(self, sent: list[int], received: list[int]) -> None:
        known = [seq for seq in {*sent, *received} if seq in self.requests]
        super().arrived(known, known)


class SendsWhatItFreed(Moves):
    """What is being sent is free."""

    def end(self, request: Request) -> None:
        super().end(request)
        if request.is_sent and request.is_busy and not self.step:
            self.free += request.table


class DropsALoad(Moves):
    """A load whose request is aborted is forgotten, and goes on writing."""

    def end(self, request: Request) -> None:
        if request.is_loading:
            self.free += request.table
            request.table = []
        super().end(request)


class DoesNotWait(Moves):
    """What has not come yet is computed upon."""

    def may_run(self, request: Request) -> bool:
        return True


class NeverLetsGo(Moves):
    """What was sent stays held."""

    def arrived(self, sent: list[int], received: list[int]) -> None:
        super().arrived([], received)


class HasNoCalls(Moves):
    """It declares transfers, and lacks the calls for them."""

    arrived = None  # type: ignore[assignment]


def add(request: int, num_tokens: int, max_tokens: int, elsewhere: tuple[int, bool]) -> Operation:
    return "add", request, (10 * request,), (1,) * num_tokens, max_tokens, (), (), None, elsewhere


CONFIG = SchedulerConfig(block_size=1, num_gpu_blocks=4, transfers=True)
STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]


def test_transfers_are_not_refuted_and_their_witnesses_are_reached() -> None:
    done = walk(SCHEDULERS, Moves(), 1, max_operations=6_000, seconds=100.0, fixed={"transfers": True})
    assert done.finding is None, done.finding
    assert all(done.coverage[name] > 10 for name in ("load", "loaded in vain", "send", "aborted in flight"))


@pytest.mark.parametrize(
    ("faulty", "properties"),
    [
        (SendsWhatItFreed, {"in-flight-held"}),
        (DropsALoad, {"in-flight-held"}),
        (DoesNotWait, {"in-flight-held"}),
        (NeverLetsGo, {"no-leak-at-rest", "conservation"}),
    ],
)
def test_what_a_transfer_uses_and_is_not_held_is_found(faulty: Callable[[], Moves], properties: set[str]) -> None:
    done = walk(SCHEDULERS, faulty(), 1, max_operations=20_000, seconds=100.0, fixed={"transfers": True})
    assert done.counterexample is not None
    short = shrink(faulty(), done.counterexample, 10)
    assert short.finding.property in properties
    assert len(short.operations) <= 7
    assert finding_of(Moves(), done.counterexample.config, done.counterexample.operations) is None


def test_an_aborted_request_that_is_loaded_and_sent_holds_its_blocks_until_both_are_over() -> None:
    fixed = {"transfers": True, "sends_aborted": True}
    done = walk(SCHEDULERS, SendsAborted(), 2, max_operations=6_000, seconds=100.0, fixed=fixed)
    assert done.finding is None, done.finding
    names = ("send of an aborted request", "send of an aborted request that is loaded")
    assert all(done.coverage[name] > 3 for name in names), done.coverage
    done = walk(SCHEDULERS, ForgetsTheOtherTransfer(), 1, max_operations=20_000, seconds=100.0, fixed=fixed)
    assert done.finding is not None
    assert done.finding.property == "in-flight-held"


def test_a_finding_with_transfers_is_saved(tmp_path: Path) -> None:
    done = walk(SCHEDULERS, NeverLetsGo(), 1, max_operations=20_000, seconds=100.0, fixed={"transfers": True})
    assert done.counterexample is not None
    saving = Saving(NeverLetsGo, "NeverLetsGo", 1, Store(tmp_path), seconds=2.0)  # type: ignore[arg-type]
    found, _ = saving.save("loop", done.counterexample, 0)
    assert found.property == done.counterexample.finding.property
    assert found.trace is not None
    assert (tmp_path / found.trace).is_file()


def test_blocks_are_held_until_what_they_hold_is_sent() -> None:
    judge = SchedulerJudge(Moves(), CONFIG)
    for operation in [add(1, 2, 1, (0, True)), *STEP]:
        assert judge.apply(operation)
    assert (judge.explainer.observed.free, judge.requests, judge.is_done()) == ((2, 0), {}, False)
    for operation in [("schedule",), ("launch",), ("complete", (0,), (), (), (10, 99))]:
        assert judge.apply(operation)
    assert (judge.explainer.observed.free, judge.is_done()) == ((4, 0), True)


def test_what_has_come_is_read_and_not_computed() -> None:
    judge = SchedulerJudge(Moves(), CONFIG)
    for operation in [add(1, 3, 1, (2, False)), *STEP[:2], ("complete", (0,), (), (), (10,))]:
        assert judge.apply(operation)
    assert judge.state.num_written[:3] == [1, 1, 0]
    assert judge.apply(("schedule",))
    assert judge.answer == "sequence 10: 2 to 3"


def test_a_run_with_transfers_is_saved_and_described() -> None:
    operations = [add(1, 3, 1, (2, True)), *STEP[:2], ("complete", (0,), (), (), (10,))]
    steps = describe_steps(Moves, CONFIG, operations)
    assert "2 tokens from elsewhere, sent when over" in steps[0]
    assert "sequence 10: loads 0 to 2" in steps[1]
    assert steps[3].startswith("complete(samples 0, the transfer of sequence 10 is over)")
    written = json.loads(json.dumps(operations))
    trace = Trace("moves", "in-flight-held", "", CONFIG.as_dict(), written)
    assert operations_of(trace, Path("trace.json")) == operations


def test_a_subject_with_transfers_must_have_the_calls_that_report_their_end() -> None:
    with pytest.raises(AdapterError, match="declares that it transfers KV, and has no arrived"):
        SchedulerJudge(HasNoCalls(), CONFIG)
