"""Fixtures: groups for a manager, their steps, and a small engine around the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest

from kvproof.impl import BlockManager, Sequence, SequenceGroup, SequenceStatus
from kvproof.impl.scheduler import Scheduler, SchedulerConfig, SchedulerOutputs

MakeGroup = Callable[..., SequenceGroup]


@pytest.fixture
def make_group() -> MakeGroup:
    """`make_group(tokens)` returns a waiting group; sequence ids count from 0."""
    next_id = iter(range(10_000))

    def make(
        tokens: list[int],
        num_seqs: int = 1,
        extra: Hashable = None,
        encoder: list[int] | None = None,
        request_id: str | None = None,
    ) -> SequenceGroup:
        seqs = [Sequence(next(next_id), tokens, 4, extra) for _ in range(num_seqs)]
        encoder_seq = None if encoder is None else Sequence(next(next_id), encoder, 4)
        return SequenceGroup(request_id or f"request-{seqs[0].seq_id}", seqs, encoder_seq)

    return make


@pytest.fixture
def run() -> Callable[[SequenceGroup], SequenceGroup]:
    """Set every sequence of a group running, with all its tokens computed."""

    def start(group: SequenceGroup) -> SequenceGroup:
        for seq in group.seqs:
            seq.status = SequenceStatus.RUNNING
            seq.data.update_num_computed_tokens(seq.data.get_num_uncomputed_tokens())
        return group

    return start


@pytest.fixture
def compute() -> Callable[[Any, SequenceGroup, int], None]:
    """`compute(manager, group, num_tokens)`: a step that computes the next tokens of every sequence of the group."""

    def step(manager: Any, group: SequenceGroup, num_tokens: int) -> None:
        manager.mark_blocks_as_computed(group, num_tokens)
        for seq in group.seqs:
            seq.data.update_num_computed_tokens(num_tokens)

    return step


@pytest.fixture
def set_status() -> Callable[[SequenceGroup, SequenceStatus], None]:
    """Give every sequence of a group the same status."""

    def set_all(group: SequenceGroup, status: SequenceStatus) -> None:
        for seq in group.seqs:
            seq.status = status

    return set_all


BLOCK_SIZE = 4


class Engine:
    """A scheduler with its manager, and a model that always samples token 7."""

    def __init__(self, num_gpu_blocks: int = 8, num_cpu_blocks: int = 0, manager: Any = (), **config: Any) -> None:
        self.manager = BlockManager(BLOCK_SIZE, num_gpu_blocks, num_cpu_blocks, 0.0, **dict(manager))
        self.scheduler = Scheduler(SchedulerConfig(**config), self.manager)
        self.num_seqs = 0
        self.outputs = SchedulerOutputs()

    def add(self, num_tokens: int, name: str, num_seqs: int = 1, encoder: int = 0, token: int = 1) -> SequenceGroup:
        """Add a request of `num_seqs` sequences with the same prompt."""
        seqs = [self.sequence([token] * num_tokens) for _ in range(num_seqs)]
        group = SequenceGroup(name, seqs, self.sequence([2] * encoder) if encoder else None)
        self.scheduler.add_seq_group(group)
        return group

    def sequence(self, tokens: list[int]) -> Sequence:
        """Return a sequence with the next id."""
        self.num_seqs += 1
        return Sequence(self.num_seqs, tokens, BLOCK_SIZE)

    def schedule(self) -> list[tuple[str, int]]:
        """Schedule a step; returns its groups and their chunks."""
        self.outputs = self.scheduler.schedule()
        return [(s.seq_group.request_id, s.token_chunk_size) for s in self.outputs.scheduled_seq_groups]

    def complete(self) -> None:
        """Execute the scheduled step."""
        for scheduled in self.outputs.scheduled_seq_groups:
            for seq in scheduled.seq_group.get_seqs(SequenceStatus.RUNNING):
                seq.data.update_num_computed_tokens(scheduled.token_chunk_size)
                if not seq.data.get_num_uncomputed_tokens():
                    seq.append_token_id(7)
        self.scheduler.free_finished_seq_groups()

    def step(self) -> list[tuple[str, int]]:
        """Schedule a step and execute it; returns its groups and their chunks."""
        scheduled = self.schedule()
        self.complete()
        return scheduled

    def fork(self, group: SequenceGroup) -> Sequence:
        """Fork the first sequence of a group; returns the child."""
        child = group.seqs[0].fork(self.num_seqs + 1)
        self.num_seqs += 1
        group.add(child)
        self.scheduler.fork_seq(group.seqs[0], child)
        return child

    def queues(self) -> tuple[list[str], list[str], list[str]]:
        """The names of the requests in waiting, running and swapped."""
        one, two, three = (
            [group.request_id for group in queue]
            for queue in (self.scheduler.waiting, self.scheduler.running, self.scheduler.swapped)
        )
        return one, two, three

    def statuses(self, group: SequenceGroup) -> list[str]:
        """The status of each sequence of a group."""
        return [seq.status.name for seq in group.seqs]

    def is_empty(self) -> bool:
        """Whether every block is free."""
        free = (self.manager.get_num_free_gpu_blocks(), self.manager.get_num_free_cpu_blocks())
        return free == (self.manager.num_total_gpu_blocks, self.manager.num_total_cpu_blocks)


@pytest.fixture
def new_engine() -> Callable[..., Engine]:
    """`new_engine(num_gpu_blocks, num_cpu_blocks, manager={...}, ...)`; other arguments configure the scheduler."""
    return Engine


@pytest.fixture
def chunked() -> Callable[..., Engine]:
    """An engine with chunked prefill and 6 tokens in a step."""

    def new(**more: Any) -> Engine:
        return Engine(max_num_batched_tokens=6, max_num_seqs=4, chunked_prefill_enabled=True, **more)

    return new


@pytest.fixture
def beams() -> Callable[[int], tuple[Engine, SequenceGroup]]:
    """An engine with a single sequence and a group of two, whose pool is full in the next step; and that group."""

    def new(num_cpu_blocks: int) -> tuple[Engine, SequenceGroup]:
        engine = Engine(num_gpu_blocks=5, num_cpu_blocks=num_cpu_blocks)
        engine.add(7, "single")
        group = engine.add(7, "pair", num_seqs=2)
        engine.step()
        engine.step()
        return engine, group

    return new
