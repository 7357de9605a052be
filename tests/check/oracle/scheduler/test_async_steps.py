"""Steps under way when the next one is scheduled: what they use is held until they are complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.check.oracle.level import SCHEDULER
from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Assumption, Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.spec.trace import Operation


class Request:
    """A sequence of the scheduler below. `ahead`: tokens that steps under way sample; `uses`: those steps."""

    def __init__(self, number: int, seq: int, num_tokens: int, limit: int) -> None:
        self.number, self.seq, self.known, self.limit = number, seq, num_tokens, limit
        self.ahead = self.computed = self.uses = 0
        self.is_over = False
        self.table: list[int] = []


class Ahead:
    """First come, first served, each with room for all it will ever need; a step may be scheduled while others run."""

    name = "ahead"
    capabilities = Capabilities(async_steps=2)
    assumptions: tuple[Assumption, ...] = ()

    def open(self, config: SchedulerConfig) -> None:
        if config.num_host_blocks or config.watermark:
            raise Unsupported("no host blocks, no watermark")
        self.config = config
        self.free = list(range(config.num_gpu_blocks))
        self.requests: dict[int, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.steps: list[list[tuple[Request, bool]]] = []

    def need(self, request: Request) -> int:
        return -(-(request.limit - 1) // self.config.block_size)

    def add_request(
        self, request: int, seqs: list[int], tokens: list[int], key: Any, images: Any, max_tokens: int, encoder: Any
    ) -> None:
        limit = max(len(tokens) + 1, min(len(tokens) + max_tokens, self.config.max_model_len))
        new = self.requests[seqs[0]] = Request(request, seqs[0], len(tokens), limit)
        self.waiting.append(new)

    def abort(self, request: int) -> None:
        self.end(next(r for r in self.requests.values() if r.number == request))

    def end(self, request: Request) -> None:
        request.is_over = True
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)
        self.give_up(request)

    def give_up(self, request: Request) -> None:
        """When nothing uses its blocks any more."""
        if not request.uses:
            self.release(request)

    def release(self, request: Request) -> None:
        self.free += request.table
        request.table = []
        self.requests.pop(request.seq, None)

    def schedule(self) -> ScheduledStep:
        chunks: list[Chunk] = []
        step: list[tuple[Request, bool]] = []
        ignored = [r for r in self.waiting if r.known > self.config.max_model_len]
        failed = [r for r in self.waiting if r not in ignored and self.need(r) > self.config.num_gpu_blocks]
        for request in ignored + failed:
            self.end(request)
        planned_checks = sum(self.need(r) - len(r.table) for r in self.running)
        while self.waiting and len(self.running) < self.config.max_num_seqs:
            if self.need(self.waiting[0]) + planned_checks > len(self.free):
                break
            planned_checks += self.need(self.waiting[0])
            self.running.append(self.waiting.pop(0))
        budget = self.config.max_num_batched_tokens
        for request in self.running:
            start, stop = request.computed, min(request.known + request.ahead, request.limit - 1)
            if start == stop or stop - start > budget:
                continue
            budget -= stop - start
            while len(request.table) * self.config.block_size < stop:
                request.table.append(self.free.pop(0))
            chunks.append(Chunk(request.seq, start, stop))
            request.computed, request.uses = stop, request.uses + 1
            request.ahead += 1
            step.append((request, True))
        self.steps.append(step)
        return ScheduledStep(chunks, ignored=[r.number for r in ignored], failed=[r.number for r in failed])

    def launch(self) -> None:
        pass

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        for request, _ in self.steps.pop(0):
            request.uses -= 1
            if request.is_over:
                self.give_up(request)
                continue
            request.known, request.ahead = request.known + 1, request.ahead - 1
            if request.seq in finished:
                self.end(request)

    def observe(self) -> Observation:
        tables = {r.seq: [r.table[:]] for r in self.requests.values() if r.table}
        refs = [0] * self.config.num_gpu_blocks
        for table in tables.values():
            for block in table[0]:
                refs[block] += 1
        return Observation(tables, (len(self.free), 0), (), refs, self.free[:])


class HidesWhatItHolds(Ahead):
    """A request that ended has no table, though its blocks are held."""

    def observe(self) -> Observation:
        seen = super().observe()
        for seq in [seq for seq in seen.tables if self.requests[seq].is_over]:
            for block in seen.tables.pop(seq)[0]:
                seen.refs[block] = 0  # type: ignore[index]
        return seen


class GivesUpAtOnce(Ahead):
    """What a step under way uses is not held."""

    def give_up(self, request: Request) -> None:
        self.release(request)


class HoldsForOneStep(Ahead):
    """The first step that completes gives everything up, whatever else is under way."""

    def give_up(self, request: Request) -> None:
        if request.uses < 2:
            self.release(request)


class ForgetsToGiveUp(Ahead):
    """A request that ends while a step runs is never looked at again."""

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        self.steps[0] = [pair for pair in self.steps[0] if not pair[0].is_over]
        super().complete(sampled, forks, finished)


class Counts(GivesUpAtOnce):
    """Shows neither refcounts nor its free list."""

    def observe(self) -> Observation:
        return super().observe()._replace(refs=None, free_ids=None)


def add(request: int, num_tokens: int, max_tokens: int) -> Operation:
    return "add", request, (10 * request,), (1,) * num_tokens, max_tokens, (), (), None


RUN: list[Operation] = [("schedule",), ("launch", (0,))]


def test_steps_ahead_are_not_refuted_and_every_witness_is_reached() -> None:
    done = walk(SCHEDULERS, Ahead(), 1, max_operations=10_000, seconds=100.0)
    assert done.finding is None, done.finding
    expected = {name for name, is_expected in SCHEDULER.expected_witnesses(Ahead.capabilities).items() if is_expected}
    witnessed = {name for name in expected if done.coverage[name]}
    assert expected - witnessed == {"preempted"}  # it admits only what has room
    assert {"scheduled while another is under way", "aborted in flight"} <= witnessed


@pytest.mark.parametrize(
    ("faulty", "properties"),
    [
        (GivesUpAtOnce, {"in-flight-held"}),
        (HoldsForOneStep, {"in-flight-held"}),
        (Counts, {"in-flight-held"}),
        (ForgetsToGiveUp, {"no-leak-at-rest"}),
    ],
)
def test_blocks_that_are_not_held_are_found_and_the_run_is_shrunk(
    faulty: Callable[[], Ahead], properties: set[str]
) -> None:
    done = walk(SCHEDULERS, faulty(), 1, max_operations=20_000, seconds=100.0)
    assert done.counterexample is not None
    short = shrink(faulty(), done.counterexample, 10)
    assert short.finding.property in properties
    assert len(short.operations) <= 9
    assert finding_of(Ahead(), done.counterexample.config, done.counterexample.operations) is None


def test_a_step_goes_on_with_a_token_that_another_samples() -> None:
    judge = SchedulerJudge(Ahead(), SchedulerConfig(async_steps=1))
    assert all(judge.apply(operation) for operation in [add(1, 3, 3), *RUN, ("schedule",)])
    assert judge.answer == "sequence 10: 3 to 4"
    assert not judge.apply(("complete", (0,)))  # it is launched first
    assert judge.apply(("launch", (5,)))
    assert judge.seqs[10].tokens[3:] == [0, 5]
    assert not judge.apply(("schedule",))  # one other step may be under way, not two
    assert [judge.apply(("complete", (0,))) for _ in range(3)] == [True, True, False]


def test_blocks_may_be_held_without_a_table() -> None:
    done = walk(SCHEDULERS, HidesWhatItHolds(), 1, max_operations=4_000, seconds=100.0)
    assert done.finding is None, done.finding
    assert done.coverage["aborted in flight"]
    aborted: list[Operation] = [add(1, 3, 9), ("schedule",), ("abort", 1)]
    assert finding_of(HidesWhatItHolds(), SchedulerConfig(), [*aborted, ("launch",), ("complete", (0,))]) is None


def test_what_runs_in_vain_is_held_until_its_step_is_complete() -> None:
    judge = SchedulerJudge(Ahead(), SchedulerConfig(async_steps=1, num_gpu_blocks=4))
    for operation in [add(1, 3, 9), *RUN, *RUN, ("complete", (0,), (), (10,))]:
        assert judge.apply(operation), operation
    assert judge.explainer.observed.free == (3, 0)
    assert judge.apply(("complete", (0,)))
    assert (judge.explainer.observed.free, judge.is_done()) == ((4, 0), True)


def test_a_device_that_runs_its_steps_in_order_holds_only_blocks_of_steps_that_are_not_launched() -> None:
    class InOrder(GivesUpAtOnce):
        capabilities = Capabilities(async_steps=1, steps_in_order=True)

    config = SchedulerConfig(async_steps=1)
    assert finding_of(InOrder(), config, [add(1, 3, 9), *RUN, *RUN, ("abort", 1), ("complete", (0,))]) is None
    found = finding_of(InOrder(), config, [add(1, 3, 9), ("schedule",), ("abort", 1)])
    assert isinstance(found, Finding)
    assert found.property == "in-flight-held"


def test_one_step_at_a_time_is_the_default_of_a_scheduler_that_can_no_more() -> None:
    judge = SchedulerJudge(BuiltInScheduler(), SchedulerConfig())
    assert [judge.apply(operation) for operation in [add(1, 3, 3), ("schedule",), ("launch",), ("schedule",)]] == [
        True,
        True,
        True,
        False,
    ]
