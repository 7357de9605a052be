"""Drafts: a step verifies those that were proposed, behind the newest token, and has slots for them."""

import re
from typing import Any

import pytest

from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import SchedulerCan
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Observation, Unsupported
from kvproof.check.protocol.scheduler import PADDING, Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.spec.text.budgets import slots_behind
from kvproof.spec.trace import Operation

CONFIG = SchedulerConfig(2, 16, max_num_batched_tokens=8, max_num_seqs=2, max_model_len=8, speculative_tokens=3)


class Verifies(SchedulerAdapter):
    """A lawful scheduler: it admits a request when the pool has room for its greatest length, and verifies all drafts
    for which there are tokens and positions left.
    """

    name = "verifies"
    capabilities = SchedulerCan(preempts=False, speculative_tokens=3)

    def make(self, config: SchedulerConfig) -> list[int]:
        self.most = -(-config.max_model_len // config.block_size)
        if self.most > config.num_gpu_blocks:
            raise Unsupported("the longest sequence does not fit the pool")
        if config.max_num_batched_tokens < config.max_model_len:
            raise Unsupported("a step has room for a prompt of the greatest length")
        self.tokens: dict[int, list[int]] = {}  # by sequence, in the order of arrival
        self.num_computed: dict[int, int] = {}
        self.tables: dict[int, list[int]] = {}
        self.drafts: dict[int, list[int]] = {}
        self.right: dict[int, list[int]] = {}
        return list(range(config.num_gpu_blocks))

    def add(self, request: Request) -> None:
        self.tokens[request.seq], self.num_computed[request.seq] = request.tokens[:], 0

    def cancel(self, request: Request) -> None:
        self.end(request.seq)

    def end(self, seq: int) -> None:
        del self.tokens[seq], self.num_computed[seq]
        self.scheduler += self.tables.pop(seq, [])
        self.drafts.pop(seq, None)

    def accepted(self, drafts: dict[int, list[int]]) -> None:
        self.right = drafts

    def propose(self, drafts: dict[int, list[int]]) -> None:
        self.drafts |= {seq: tokens for seq, tokens in drafts.items() if seq in self.tokens}

    def drafts_of(self, seq: int, num_tokens_left: int) -> list[int]:
        num_known = len(self.tokens[seq])
        room = min(num_tokens_left - (num_known - self.num_computed[seq]), self.config.max_model_len - num_known)
        return self.drafts.get(seq, [])[: max(0, room)]

    def may_run(self, seq: int, num_running: int) -> bool:
        if seq in self.tables:
            return True
        reserved = sum(self.most - len(table) for table in self.tables.values())
        return num_running < self.config.max_num_seqs and len(self.scheduler) - reserved >= self.most

    def num_new(self, seq: int) -> int:
        return len(self.tokens[seq]) - self.num_computed[seq]

    def next_step(self) -> tuple[Any, ScheduledStep]:
        left, chunks, verified = self.config.max_num_batched_tokens, [], []
        for seq in self.tokens:
            num_new = self.num_new(seq)
            if num_new > left or not self.may_run(seq, len(self.tables)):
                break
            drafts = self.drafts_of(seq, left)
            stop = self.num_computed[seq] + num_new + len(drafts)
            table = self.tables.setdefault(seq, [])
            while len(table) < self.slots_for(stop, len(drafts)):
                table.append(self.scheduler.pop())
            chunks.append(self.chunk(seq, stop, len(drafts)))
            left -= stop - self.num_computed[seq]
            if drafts:
                verified.append((seq, drafts))
        return None, ScheduledStep(chunks, drafts=verified)

    def slots_for(self, stop: int, num_drafts: int) -> int:
        return -(-stop // self.config.block_size)

    def chunk(self, seq: int, stop: int, num_drafts: int) -> Chunk:
        return Chunk(seq, self.num_computed[seq], stop)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        for seq, token in sampled.items():
            right = self.right.get(seq, [])
            self.num_computed[seq] = len(self.tokens[seq]) + self.num_kept(len(right))
            self.tokens[seq] += [*right, token]
            self.drafts.pop(seq, None)
        for seq in finished:
            self.end(seq)

    def num_kept(self, num_right: int) -> int:
        return num_right

    def observe(self) -> Observation:
        return Observation({seq: [table[:]] for seq, table in self.tables.items()}, (len(self.scheduler), 0))


class VerifiesOne(Verifies):
    """It verifies one draft at most."""

    def drafts_of(self, seq: int, num_tokens_left: int) -> list[int]:
        return super().drafts_of(seq, num_tokens_left)[:1]


class LooksAhead(Verifies):
    """It has slots for what a draft model writes behind the drafts, up to the greatest length."""

    capabilities = SchedulerCan(preempts=False, speculative_tokens=3, lookahead=True)

    def make(self, config: SchedulerConfig) -> list[int]:
        if config.lookahead not in (0, config.speculative_tokens):
            raise Unsupported("there are as many lookahead slots as drafts, or none")
        return super().make(config)

    def slots_for(self, stop: int, num_drafts: int) -> int:
        return super().slots_for(min(stop + self.config.lookahead, max(stop, self.config.max_model_len)), num_drafts)


class LooksAheadTooLate(LooksAhead):
    """The step in which a prompt ends has no slots for its draft model."""

    def slots_for(self, stop: int, num_drafts: int) -> int:
        return super().slots_for(stop, num_drafts) if num_drafts else Verifies.slots_for(self, stop, num_drafts)


class GivesBack(Verifies):
    """It gives the blocks of rejected drafts back when the step is complete."""

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        super().take_results(output, sampled, finished)
        for seq, table in self.tables.items():
            while len(table) > self.slots_for(len(self.tokens[seq]) - 1, 0):
                self.scheduler.append(table.pop())


class Pads(Verifies):
    """It fills each decode with rows that nobody proposed."""

    def drafts_of(self, seq: int, num_tokens_left: int) -> list[int]:
        room = len(super().drafts_of(seq, num_tokens_left)) or self.config.max_model_len - len(self.tokens[seq])
        num_left = num_tokens_left - (len(self.tokens[seq]) - self.num_computed[seq])
        return [PADDING] * max(0, min(room, num_left, 2)) if self.num_computed[seq] else []


class Ahead(Verifies):
    """A lawful scheduler that schedules a step before it knows which drafts of the last one are accepted."""

    capabilities = SchedulerCan(preempts=False, speculative_tokens=3, async_steps=2, steps_in_order=True)

    def make(self, config: SchedulerConfig) -> list[int]:
        self.to_come: dict[int, int] = {}  # by sequence: tokens of steps under way, if all drafts are accepted
        return super().make(config)

    def takes_aborts(self) -> bool:
        return not self.under_way or (self.config.async_steps > 0 and self.is_launched)

    def num_known(self, seq: int) -> int:
        return len(self.tokens[seq]) + self.to_come.get(seq, 0)

    def next_step(self) -> tuple[Any, ScheduledStep]:
        if not self.config.async_steps:
            return super().next_step()
        left, chunks, drafts = self.config.max_num_batched_tokens, [], dict[int, int]()
        for seq in self.tokens:
            num_new = self.num_known(seq) - self.num_computed[seq]
            if num_new > left or not self.may_run(seq, len(self.tables)):
                break
            if not num_new or self.num_known(seq) > self.config.max_model_len:
                continue
            is_decode = self.num_computed[seq] > 0
            room = min(left - num_new, self.config.max_model_len - self.num_known(seq))
            drafts[seq] = min(self.config.speculative_tokens, room) if is_decode else 0
            stop = self.num_known(seq) + drafts[seq]
            table = self.tables.setdefault(seq, [])
            while len(table) < self.slots_for(stop, 0):
                table.append(self.scheduler.pop())
            chunks.append(Chunk(seq, self.num_computed[seq], stop))
            left -= stop - self.num_computed[seq]
            self.num_computed[seq] = stop
            self.to_come[seq] = self.to_come.get(seq, 0) + 1 + drafts[seq]
        verified = [(seq, [PADDING] * num) for seq, num in drafts.items() if num]
        return drafts, ScheduledStep(chunks, drafts=verified)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        if not self.config.async_steps:
            super().take_results(output, sampled, finished)
            return
        for seq, token in sampled.items():
            right = self.right.get(seq, [])
            self.num_computed[seq] -= self.num_taken_back(output[seq] - len(right))
            self.to_come[seq] -= 1 + output[seq]
            self.tokens[seq] += [*right, token]
        for seq in finished:
            self.end(seq)

    def end(self, seq: int) -> None:
        super().end(seq)
        self.to_come.pop(seq, None)

    def num_taken_back(self, num_rejected: int) -> int:
        return num_rejected


class KeepsRejected(Ahead):
    """Rejected drafts stay computed."""

    def num_taken_back(self, num_rejected: int) -> int:
        return 0


class KeepsDraftsOfPrompts(Verifies):
    """It computes two tokens of a prompt in a step, and verifies what was guessed for it in the middle."""

    def num_new(self, seq: int) -> int:
        return min(2, super().num_new(seq))

    def drafts_of(self, seq: int, num_tokens_left: int) -> list[int]:
        return super().drafts_of(seq, num_tokens_left) if Verifies.num_new(self, seq) <= 2 else []

    def next_step(self) -> tuple[Any, ScheduledStep]:
        _, step = super().next_step()
        return step.chunks, step

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        for chunk in output:
            if chunk.seq in self.tokens:
                self.num_computed[chunk.seq] = chunk.stop
        self.newer = {*sampled}
        super().take_results(output, sampled, finished)


class ComputesParts(KeepsDraftsOfPrompts):
    """A lawful one: it takes drafts only behind the end of a prompt."""

    def propose(self, drafts: dict[int, list[int]]) -> None:
        super().propose({seq: tokens for seq, tokens in drafts.items() if seq in self.newer})


class SkipsOne(Verifies):
    """A rejected draft counts as computed: the next step begins one position too late."""

    def num_kept(self, num_right: int) -> int:
        return num_right + 1


class KeepsOldDrafts(Verifies):
    """It verifies drafts once more, behind a newer token."""

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        old = {seq: drafts for seq, drafts in self.drafts.items() if seq not in finished}
        super().take_results(output, sampled, finished)
        self.drafts |= old

    def propose(self, drafts: dict[int, list[int]]) -> None:
        self.drafts |= {seq: tokens for seq, tokens in drafts.items() if tokens and seq in self.tokens}


class LacksSlots(Verifies):
    """It has no slots for drafts."""

    def slots_for(self, stop: int, num_drafts: int) -> int:
        return super().slots_for(stop - num_drafts, 0)


class LeavesOneOut(Verifies):
    """It computes one position less than the drafts take."""

    def chunk(self, seq: int, stop: int, num_drafts: int) -> Chunk:
        return Chunk(seq, self.num_computed[seq], stop - (num_drafts > 0))


class ForgetsTheVictim(Verifies):
    """The drafts of a request stay in the step, and its chunk does not."""

    def next_step(self) -> tuple[Any, ScheduledStep]:
        output, step = super().next_step()
        chunks = [chunk for chunk in step.chunks if all(chunk.seq != seq for seq, _ in step.drafts)]
        return output, step._replace(chunks=chunks)


class ForgetsTheStart(Ahead):
    """It takes more drafts back than were rejected."""

    def num_taken_back(self, num_rejected: int) -> int:
        return num_rejected + (num_rejected > 0) * 9


class RunsBackwards(Ahead):
    """It computes less than no token of a request."""

    def next_step(self) -> tuple[Any, ScheduledStep]:
        drafts, step = super().next_step()
        return drafts, step._replace(chunks=[one._replace(start=one.stop + 1) for one in step.chunks])


@pytest.mark.parametrize(
    ("kind", "num_steps"),
    [
        (Verifies, 0),
        (LooksAhead, 0),
        (VerifiesOne, 0),
        (GivesBack, 0),
        (Pads, 0),
        (ComputesParts, 0),
        (Ahead, 1),
        (Ahead, 2),
    ],
)
def test_a_lawful_scheduler_with_drafts_is_not_refuted(kind: type[Verifies], num_steps: int) -> None:
    fixed = {"speculative_tokens": 3, "async_steps": num_steps}
    done = walk(SCHEDULERS, kind(), 1, max_operations=4_000, seconds=60, fixed=fixed)
    assert done.finding is None
    assert done.coverage["draft rejected"] > 100
    assert done.coverage["draft accepted"] > 100 or kind is Pads


@pytest.mark.parametrize(
    ("kind", "property"),
    [
        (SkipsOne, "budget-kept"),
        (KeepsDraftsOfPrompts, "read-back"),
        (KeepsOldDrafts, "read-back"),
        (LacksSlots, "read-back"),
        (LeavesOneOut, "read-back"),
        (ForgetsTheVictim, "read-back"),
        (KeepsRejected, "budget-kept"),
        (ForgetsTheStart, "read-back"),
        (LooksAheadTooLate, "read-back"),
    ],
)
def test_a_scheduler_that_confuses_drafts_is_refuted(kind: type[Verifies], property: str) -> None:
    fixed = {"speculative_tokens": 3, "async_steps": int(issubclass(kind, Ahead))}
    done = walk(SCHEDULERS, kind(), 1, max_operations=4_000, seconds=60, fixed=fixed)
    assert done.finding is not None
    assert done.finding.property == property


@pytest.mark.parametrize(
    ("num_tokens", "num_slots"),
    [(0, 3), (5, 3), (6, 2), (7, 1), (8, 0), (9, 0)],
)
def test_a_draft_model_writes_no_further_than_the_greatest_length(num_tokens: int, num_slots: int) -> None:
    assert slots_behind(num_tokens, 3, 8) == num_slots


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (ForgetsTheStart, r"sequence \d+ shall compute from position -\d+ on; its first one is 0"),
        (RunsBackwards, r"sequence \d+ shall compute from position \d+ on, and end before \d+"),
    ],
)
def test_positions_that_are_none_are_found(kind: type[Ahead], sentence: str) -> None:
    fixed = {"speculative_tokens": 3, "async_steps": 1}
    done = walk(SCHEDULERS, kind(), 1, max_operations=4_000, seconds=60, fixed=fixed)
    assert done.finding is not None
    assert re.search(sentence, done.finding.text)


def test_a_sequence_ends_with_the_last_token_that_it_may_have_though_more_drafts_are_right() -> None:
    judge = SchedulerJudge(Verifies(), CONFIG)
    add: Operation = "add", 1, (10,), (5,), 3
    for operation in (add, ("schedule",), ("launch",), ("complete", (6,), (), (), (), (), ((10, (7, 8, 9), 3),))):
        assert judge.apply(operation)
    assert judge.apply(("schedule",))
    assert judge.seqs[10].tokens == [5, 6, 7, 8]  # a prompt of one, and the three that it generates
    assert judge.coverage["drafts cut off"] == 1
    assert judge.apply(("launch",))
    assert judge.apply(("complete", (6,)))
    assert judge.is_done()


def test_a_subject_that_verifies_no_drafts_gets_none() -> None:
    with pytest.raises(Unsupported, match="the subject does not verify so many drafts of one sequence"):
        SchedulerJudge(BuiltInScheduler(), CONFIG)


@pytest.mark.parametrize("drafts", [5, [1], [(1, 2)], [("a", [1])], [(10, ["x"])], [(10, [1], 1)]])
def test_drafts_of_another_form_are_the_adapters_fault(drafts: Any) -> None:
    class Malformed(Verifies):
        def next_step(self) -> tuple[Any, ScheduledStep]:
            output, step = super().next_step()
            return output, step._replace(drafts=drafts)

    judge = SchedulerJudge(Malformed(), CONFIG)
    judge.apply(("add", 1, (10,), (5,), 3))
    with pytest.raises(AdapterError, match=r"schedule\(\)\.drafts must be a list of \(sequence, tokens\); it is"):
        judge.apply(("schedule",))
