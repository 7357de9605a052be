"""Schedulers that keep blocks behind a window for a while, or leave them between steps: which may, which may not."""

from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.protocol.capabilities import SchedulerCan
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import NULL_BLOCK, Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS

FIXED: dict[str, Any] = {
    "kv_groups": ("full", "window"),
    "window": 2,
    "block_size": 1,
    "num_gpu_blocks": 40,
    "max_num_seqs": 2,
}
FIXED |= {"max_model_len": 9, "max_num_batched_tokens": 18}
NUM_OPERATIONS = 600
AT_ONCE, WHEN_COMPLETE, AT_THE_END, NEVER = "at once", "when complete", "at the end", "never"


class Keeps(SchedulerAdapter):
    """A block behind the window stays with its sequence to the end, and the scheduler shows that."""

    capabilities = SchedulerCan(
        chunked=False,
        preempts=False,
        window=True,
        kv_groups=True,
        has_admission_query=False,
        dedups_after_step=True,
        dedups_when_scheduled=True,
        keeps_behind_window=True,
    )
    gives_back = AT_THE_END  # when a block that left the table is free
    num_too_many = 0  # entries that are given up though they are read
    shows = True

    def make(self, config: SchedulerConfig) -> Any:
        if config.max_num_seqs * 2 * (config.max_model_len + 1) > config.num_gpu_blocks:
            raise Unsupported("all sequences fit the pool")
        if config.max_num_batched_tokens < config.max_num_seqs * config.max_model_len:
            raise Unsupported("a step has room for everybody")
        self.free = list(range(config.num_gpu_blocks))
        self.tables: dict[int, list[list[int]]] = {}
        self.tokens: dict[int, list[int]] = {}
        self.done: dict[int, int] = {}
        self.kept: dict[int, list[int]] = {}
        return self

    def add(self, request: Request) -> None:
        self.tokens[request.seq] = list(request.tokens)

    def cancel(self, request: Request) -> None:
        self.end(request.seq)

    def end(self, seq: int) -> None:
        del self.tokens[seq]
        if seq in self.tables:
            del self.done[seq]
            self.free += [block for table in self.tables.pop(seq) for block in table if block != NULL_BLOCK]
            if self.gives_back != NEVER:
                self.free += self.kept.pop(seq)

    def leave(self) -> None:
        """Everybody leaves what is behind the window."""
        for seq, (_, table) in self.tables.items():
            for entry in range(max(0, self.done[seq] - self.config.window + 1 + self.num_too_many)):  # type: ignore[operator]
                if entry < len(table) and table[entry] != NULL_BLOCK:
                    (self.free if self.gives_back in (AT_ONCE, WHEN_COMPLETE) else self.kept[seq]).append(table[entry])
                    table[entry] = NULL_BLOCK

    def next_step(self) -> tuple[Any, ScheduledStep]:
        if self.gives_back != WHEN_COMPLETE:
            self.leave()
        self.free.sort(reverse=True)
        chunks = []
        running = [*self.tables, *(seq for seq in self.tokens if seq not in self.tables)][: self.config.max_num_seqs]
        for seq in running:
            tables = self.tables.setdefault(seq, [[], []])
            self.kept.setdefault(seq, [])
            start, stop = self.done.get(seq, 0), len(self.tokens[seq])
            for table in tables:
                table += [self.free.pop() for _ in range(stop - len(table))]
            chunks.append(Chunk(seq, start, stop))
            self.done[seq] = stop
        return None, ScheduledStep(chunks)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        for seq, token in sampled.items():
            if seq in self.tokens:
                self.tokens[seq].append(token)
        for seq in finished:
            self.end(seq)
        if self.gives_back == WHEN_COMPLETE:
            self.leave()

    def observe(self) -> Observation:
        kept = tuple(block for blocks in self.kept.values() for block in blocks) if self.shows else ()
        tables = {seq: [table[:] for table in both] for seq, both in self.tables.items()}
        return Observation(tables, (len(self.free), 0), kept=kept)


class LeavesAtOnce(Keeps):
    """What one sequence leaves, another gets in the same step."""

    gives_back = AT_ONCE


class LeavesWhenComplete(Keeps):
    """It leaves entries between two steps."""

    gives_back = WHEN_COMPLETE


class KeepsForEver(Keeps):
    gives_back = NEVER


class KeepsInSecret(Keeps):
    shows = False


class LeavesTooMuch(Keeps):
    num_too_many = 1


class LeavesTooMuchWhenComplete(LeavesWhenComplete):
    num_too_many = 1


class LeavesTheSecond(Keeps):
    """It gives up an entry, and shows the one before as if it were in reach."""

    def observe(self) -> Observation:
        seen = super().observe()
        for seq, (_, table) in seen.tables.items():
            if table and table[0] == NULL_BLOCK and self.kept[seq]:
                table[0] = self.kept[seq][0]
        return seen


@pytest.mark.parametrize("kind", [Keeps, LeavesAtOnce, LeavesWhenComplete])
def test_who_keeps_blocks_behind_a_window_and_shows_it_or_leaves_them_between_steps_may_do_so(
    kind: type[Keeps],
) -> None:
    done = walk(SCHEDULERS, kind(), 1, max_operations=NUM_OPERATIONS, seconds=float("inf"), fixed=FIXED)
    assert (done.finding, done.num_operations >= NUM_OPERATIONS) == (None, True)
    assert done.coverage["window left an entry"] > 20


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (KeepsForEver, "no-leak-at-rest"),
        (KeepsInSecret, "conservation"),
        (LeavesTooMuch, "window-kept"),
        (LeavesTooMuchWhenComplete, "window-kept"),
        (LeavesTheSecond, "window-kept"),
    ],
)
def test_who_keeps_them_for_ever_or_in_secret_or_leaves_what_is_read_is_found(kind: type[Keeps], found: str) -> None:
    done = walk(SCHEDULERS, kind(), 1, max_operations=NUM_OPERATIONS, seconds=float("inf"), fixed=FIXED)
    assert done.finding is not None
    assert done.finding.property == found


class DeclaresNothing(Keeps):
    capabilities = replace(Keeps.capabilities, keeps_behind_window=False)


def test_who_shows_kept_blocks_must_declare_it() -> None:
    with pytest.raises(AdapterError, match="`keeps_behind_window` is not declared"):
        walk(SCHEDULERS, DeclaresNothing(), 1, max_operations=NUM_OPERATIONS, seconds=float("inf"), fixed=FIXED)
