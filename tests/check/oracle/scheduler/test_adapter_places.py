"""The adapters of a step may be bounded: who lacks a place for its own waits, and others may be let in meanwhile."""

from typing import Any

import pytest
from tests.check.oracle.scheduler.test_drafts import Verifies

from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import SchedulerCan
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.spec.text.budgets import FCFS

FIXED = {"max_loras": 1, "keys": 2, "speculative_tokens": 0}


class Skips(Verifies):
    """A lawful scheduler that passes over a request without a place for its adapter, and lets in those behind it."""

    capabilities = SchedulerCan(preempts=False, adapters=True, max_loras=True, policies=(FCFS,))
    is_strict = False

    def make(self, config: SchedulerConfig) -> list[int]:
        self.adapters: dict[int, int] = {}
        return super().make(config)

    def add(self, request: Request) -> None:
        super().add(request)
        self.adapters[request.seq] = request.key.adapter_id

    def has_place(self, seq: int) -> bool:
        running = {self.adapters[one] for one in self.tables} - {0}
        return len(running | {self.adapters[seq]} - {0}) <= (self.config.max_loras or len(self.adapters))

    def waiting(self) -> list[int]:
        return [seq for seq in self.tokens if seq not in self.tables]

    def next_step(self) -> tuple[Any, ScheduledStep]:
        left = self.config.max_num_batched_tokens - len(self.tables)  # who runs has one token to compute
        seqs = [*self.tables]
        for seq in self.waiting():
            if not self.has_place(seq):
                if self.is_strict:
                    break
                continue
            if len(self.tokens[seq]) > left or not self.may_run(seq, len(self.tables)):
                break
            left -= len(self.tokens[seq])
            self.tables[seq] = []
            seqs.append(seq)
        for seq in seqs:
            while len(self.tables[seq]) < self.slots_for(len(self.tokens[seq]), 0):
                self.tables[seq].append(self.scheduler.pop())
        return None, ScheduledStep([self.chunk(seq, len(self.tokens[seq]), 0) for seq in seqs])


class Blocks(Skips):
    """A lawful scheduler that lets nobody in before a request that lacks a place."""

    is_strict = True


class Forgets(Skips):
    """It never looks for a place."""

    def has_place(self, seq: int) -> bool:
        return True


class TurnsAround(Skips):
    """It lets those in first that came last."""

    def waiting(self) -> list[int]:
        return super().waiting()[::-1]


@pytest.mark.parametrize("kind", [Skips, Blocks])
def test_a_lawful_scheduler_with_places_for_adapters_is_not_refuted(kind: type[Skips]) -> None:
    done = walk(SCHEDULERS, kind(), 1, max_operations=4_000, seconds=60, fixed=FIXED)
    assert done.finding is None
    assert done.coverage["waits for a place for its adapter"] > 20 or kind is Blocks


@pytest.mark.parametrize(("kind", "property"), [(Forgets, "budget-kept"), (TurnsAround, "arrival-order")])
def test_a_scheduler_that_confuses_places_is_refuted(kind: type[Skips], property: str) -> None:
    done = walk(SCHEDULERS, kind(), 1, max_operations=4_000, seconds=60, fixed=FIXED)
    assert done.finding is not None
    assert done.finding.property == property


def test_a_subject_without_a_bound_on_adapters_is_not_given_one() -> None:
    with pytest.raises(Unsupported, match="the subject does not bound the adapters of a step"):
        SchedulerJudge(BuiltInScheduler(), SchedulerConfig(max_loras=1))
