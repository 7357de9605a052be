"""A scheduler that forks by itself, and one that runs ahead: what their children have, and when results go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Assumption, Observation, Pair
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.spec.trace import Operation


class Run:
    """A sequence, and those that it will fork into. `limit`: its length when it is over."""

    def __init__(self, request: int, seq: int, to_come: list[int], num_tokens: int, limit: int) -> None:
        self.request, self.seq, self.to_come, self.known, self.limit = request, seq, to_come, num_tokens, limit
        self.computed = 0
        self.table: list[int] = []


class Forks:
    """Computes a prompt but for its last token, then forks: a child has a copy of everything, or waits for room."""

    name = "forks"
    capabilities = Capabilities(forks_itself=True)
    assumptions: tuple[Assumption, ...] = ()

    def open(self, config: SchedulerConfig) -> None:
        self.config = config
        self.free = list(range(config.num_gpu_blocks))
        self.waiting: list[Run] = []
        self.running: list[Run] = []
        self.step: list[Run] = []
        self.leaving: list[int] = []
        self.forks: tuple[list[tuple[int, int]], list[Pair]] = [], []

    def need(self, run: Run) -> int:
        return -(-run.limit // self.config.block_size)

    def add_request(
        self, request: int, seqs: list[int], tokens: list[int], key: Any, images: Any, max_tokens: int, encoder: Any
    ) -> None:
        limit = max(len(tokens) + 1, min(len(tokens) + max_tokens, self.config.max_model_len))
        self.waiting.append(Run(request, seqs[0], seqs[1:], len(tokens), limit))

    def abort(self, request: int) -> None:
        self.leaving.append(request)
        if not self.step:
            self.leave()

    def leave(self) -> None:
        for run in [run for run in self.waiting + self.running if run.request in self.leaving]:
            self.end(run)
        self.leaving.clear()

    def end(self, run: Run) -> None:
        (self.waiting if run in self.waiting else self.running).remove(run)
        self.free += run.table

    def has_room(self, run: Run) -> bool:
        return self.need(run) + sum(self.need(r) - len(r.table) for r in self.running) <= len(self.free)

    def schedule(self) -> ScheduledStep:
        ignored = [r for r in self.waiting if r.known > self.config.max_model_len]
        failed = [r for r in self.waiting if r not in ignored and self.need(r) > self.config.num_gpu_blocks]
        for run in ignored + failed:
            self.end(run)
        while self.waiting and len(self.running) < self.config.max_num_seqs and self.has_room(self.waiting[0]):
            self.running.append(self.waiting.pop(0))
        budget, chunks, self.step = self.config.max_num_batched_tokens, [], []
        for run in self.running[: self.config.max_num_seqs]:
            stop = run.known - bool(run.to_come)
            if stop - run.computed <= budget:
                budget -= stop - run.computed
                while len(run.table) * self.config.block_size < run.known:
                    run.table.append(self.free.pop(0))
                chunks.append(Chunk(run.seq, run.computed, stop))
                run.computed = stop
                self.step.append(run)
        return ScheduledStep(chunks, ignored=[r.request for r in ignored], failed=[r.request for r in failed])

    def launch(self) -> None:
        pass

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        step, self.step = self.step, []
        self.leave()
        for run in step:
            if run.seq in sampled:
                run.known += 1
            if run.seq in finished:
                self.end(run)
        for run in step:
            if run in self.running and run.to_come and run.computed == run.known - 1:
                for seq in run.to_come:
                    self.fork(run, Run(-seq, seq, [], run.known, run.limit))
                run.to_come = []

    def fork(self, run: Run, child: Run) -> None:
        self.forks[0].append((run.seq, child.seq))
        if self.has_room(child):
            child.table = [self.free.pop(0) for _ in run.table]
            child.computed = run.computed
            self.forks[1].extend(zip(run.table, child.table, strict=True))
            self.running.append(child)
        else:
            self.waiting.insert(0, child)

    def forked(self) -> tuple[list[tuple[int, int]], list[Pair]]:
        forks, self.forks = self.forks, ([], [])
        return forks

    def observe(self) -> Observation:
        tables = {r.seq: [r.table[:]] for r in self.running if r.table}
        refs = [0] * self.config.num_gpu_blocks
        for (table,) in tables.values():
            for block in table:
                refs[block] += 1
        return Observation(tables, (len(self.free), 0), (), refs, self.free[:])


class ForgetsACopy(Forks):
    """The last block of a child is as it was."""

    def fork(self, run: Run, child: Run) -> None:
        super().fork(run, child)
        del self.forks[1][-1:]


class CopiesInReverse(Forks):
    """Blocks of a table are copied in the wrong order."""

    def fork(self, run: Run, child: Run) -> None:
        super().fork(run, child)
        if len(child.table) > 1:
            child.table.reverse()


class SharesWhatIsOpen(Forks):
    """A child names the very blocks of its parent."""

    def fork(self, run: Run, child: Run) -> None:
        super().fork(run, child)
        if child.table:
            self.free += child.table
            child.table = run.table[:]
            self.forks[1].clear()


class ForksTwice(Forks):
    """A child that nobody asked for."""

    def fork(self, run: Run, child: Run) -> None:
        super().fork(run, child)
        self.forks[0].append(self.forks[0][-1])


def test_a_scheduler_that_forks_by_itself_is_not_refuted() -> None:
    done = walk(SCHEDULERS, Forks(), 1, max_operations=6_000, seconds=100.0)
    assert done.finding is None, done.finding
    witnessed = {"forked by itself", "forked, and waits", "aborted in flight", "pool full"}
    assert witnessed <= {name for name, number in done.coverage.items() if number}


@pytest.mark.parametrize(
    ("faulty", "properties"),
    [
        (ForgetsACopy, {"cow-copied"}),
        (CopiesInReverse, {"cow-copied", "read-back"}),
        (SharesWhatIsOpen, {"cow-copied"}),
        (ForksTwice, {"frame-kept"}),
    ],
)
def test_a_fork_that_is_wrong_is_found_and_shortened(faulty: Callable[[], Forks], properties: set[str]) -> None:
    done = walk(SCHEDULERS, faulty(), 1, max_operations=6_000, seconds=100.0)
    assert done.counterexample is not None
    short = shrink(faulty(), done.counterexample, 10)
    assert short.finding.property in properties
    assert len(short.operations) <= 8
    assert finding_of(Forks(), done.counterexample.config, done.counterexample.operations) is None


def test_the_results_of_a_step_go_back_when_the_next_one_is_launched() -> None:
    class Ahead(Forks):
        """Of its steps, the results of one go back when another is launched."""

        capabilities = Capabilities(async_steps=1, runs_ahead=True, steps_in_order=True)
        observed: tuple[dict[int, int], ...] = ()

        def computed(self, tokens: dict[int, int]) -> None:
            self.observed = (*self.observed, tokens)
            for run in self.running:
                run.known += run.seq in tokens

        def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
            self.observed = (*self.observed, sampled)

    subject = Ahead()
    judge = SchedulerJudge(subject, SchedulerConfig(async_steps=1))
    first: list[Operation] = [("add", 1, (1,), (0, 0), 9, (), (), None), ("schedule",), ("launch", (5,))]
    assert all(judge.apply(operation) for operation in first)
    assert not judge.apply(("complete", (0,)))
    assert all(judge.apply(operation) for operation in [("schedule",), ("launch", (6,)), ("complete", (0,))])
    assert subject.observed == ({1: 5}, {1: 6}, {1: 5})
