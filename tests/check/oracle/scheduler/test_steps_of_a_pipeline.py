"""Several steps ahead, as in a pipeline: a request waits for its stage, and a token comes after a preemption."""

from typing import Any

import pytest

from kvproof.check.protocol.capabilities import SchedulerCan
from kvproof.check.protocol.manager import Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.spec.text.budgets import FCFS

FULL = {"block_size": 2, "num_gpu_blocks": 5, "max_num_seqs": 4, "max_model_len": 8}


class Piped:
    """A sequence of the scheduler below. ahead: tokens that steps under way sample. newest: its last step."""

    def __init__(self, request: Request) -> None:
        self.request, self.seq, self.num_known = request, request.seq, len(request.tokens)
        self.most = len(request.tokens) + request.max_tokens
        self.computed = self.ahead = self.newest = 0
        self.table: list[int] = []


class Pipelined(SchedulerAdapter):
    """A lawful scheduler of a pipeline: it preempts the last request, and this one waits for its tokens that are under
    way, while later ones are let in.
    """

    name = "pipelined"
    capabilities = SchedulerCan(
        async_steps=2,
        staggers=True,
        steps_in_order=True,
        chunked=True,
        policies=(FCFS,),
        num_overtaken_max=0,
        refusal_slack=0,
        fills_steps=True,
        begins_prompts=True,
        serves_running=True,
        preempts_last=True,
    )
    num_spare = 0  # steps that a request leaves out without need

    def make(self, config: SchedulerConfig) -> list[int]:
        if -(-config.max_model_len // config.block_size) > config.num_gpu_blocks:
            raise Unsupported("the longest sequence does not fit the pool")
        if not config.chunked and config.max_num_batched_tokens < config.max_model_len:
            raise Unsupported("a step has room for a prompt of the greatest length")
        self.running: list[Piped] = []
        self.waiting: list[Piped] = []
        self.number = 0
        return list(range(config.num_gpu_blocks))

    def takes_aborts(self) -> bool:
        return not self.under_way or self.is_launched

    def add(self, request: Request) -> None:
        self.waiting.append(Piped(request))

    def cancel(self, request: Request) -> None:
        self.end(next(one for one in self.running + self.waiting if one.seq == request.seq))

    def end(self, one: Piped) -> None:
        (self.running if one in self.running else self.waiting).remove(one)
        self.release(one)

    def release(self, one: Piped) -> None:
        self.scheduler += one.table
        one.table = []

    def preempt_last(self) -> Piped:
        last = self.running.pop()
        self.release(last)
        last.computed = 0
        self.waiting.insert(0, last)
        return last

    def has_rested(self, one: Piped) -> bool:
        return self.number - one.newest >= (self.config.async_steps if self.config.staggered else 1) + self.num_spare

    def waits(self, one: Piped) -> bool:
        """Whether a request that was preempted waits for tokens that are under way."""
        return one.ahead > 0

    def grow(self, one: Piped, left: int) -> int:
        """Give slots to the next tokens; returns how many there are."""
        num = min(left, min(one.num_known + one.ahead, one.most - 1, self.config.max_model_len) - one.computed)
        while len(one.table) * self.config.block_size < one.computed + num:
            if not self.scheduler:
                if self.preempt_last() is one:
                    return 0
            else:
                one.table.append(self.scheduler.pop())
        return num

    def next_step(self) -> tuple[Any, ScheduledStep]:
        self.number += 1
        left, chunks, sampling, before = (
            self.config.max_num_batched_tokens,
            list[Chunk](),
            list[Piped](),
            len(self.running),
        )
        index = 0
        while index < len(self.running) and left:
            one = self.running[index]
            num = self.grow(one, left) if self.has_rested(one) else 0
            if one.table:
                index += 1
            left -= self.put(one, num, chunks, sampling)
        if len(self.running) == before:
            left = self.let_in(left, chunks, sampling)
        return sampling, ScheduledStep(chunks)

    def let_in(self, left: int, chunks: list[Chunk], sampling: list[Piped]) -> int:
        for one in self.waiting[:]:
            needed = -(-one.num_known // self.config.block_size)
            if self.waits(one):
                continue
            is_whole = self.config.chunked or one.num_known <= left
            if (
                not left
                or not is_whole
                or needed > len(self.scheduler)
                or len(self.running) == self.config.max_num_seqs
            ):
                break
            self.waiting.remove(one)
            self.running.append(one)
            left -= self.put(one, self.grow(one, left), chunks, sampling)
        return left

    def put(self, one: Piped, num: int, chunks: list[Chunk], sampling: list[Piped]) -> int:
        if num:
            chunks.append(Chunk(one.seq, one.computed, one.computed + num))
            one.computed, one.newest = one.computed + num, self.number
            if one.computed == one.num_known + one.ahead:
                one.ahead += 1
                sampling.append(one)
        return num

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        for one in output:
            one.ahead, one.num_known = one.ahead - 1, one.num_known + 1
            if one.seq in finished:
                self.end(one)

    def observe(self) -> Observation:
        return Observation({one.seq: [one.table[:]] for one in self.running}, (len(self.scheduler), 0))


class ComesBackAtOnce(Pipelined):
    """A request that was preempted comes back as soon as there is room, and computes up to the tokens that it has."""

    def waits(self, one: Piped) -> bool:
        return False


class RestsTooLong(Pipelined):
    """It leaves a request out of one step more than the pipeline needs."""

    num_spare = 1


class LetsAnyOvertake(Pipelined):
    """A request of an even number lets later ones overtake it, though it waits for nothing."""

    def waits(self, one: Piped) -> bool:
        return super().waits(one) or (one.seq % 2 == 0 and len(self.waiting) > 1)


class CutsPrompts(Pipelined):
    """It ends a chunk before the step is full."""

    def grow(self, one: Piped, left: int) -> int:
        return super().grow(one, min(left, 2))


class ForgetsWhatIsUnderWay(Pipelined):
    """A request that was preempted samples the token that is under way once more."""

    def preempt_last(self) -> Piped:
        last = super().preempt_last()
        last.ahead = 0
        return last


@pytest.mark.parametrize("kind", [Pipelined, ComesBackAtOnce])
@pytest.mark.parametrize(("num_steps", "staggered"), [(1, False), (2, False), (2, True)])
def test_a_lawful_scheduler_of_a_pipeline_is_not_refuted(
    kind: type[Pipelined], num_steps: int, staggered: bool
) -> None:
    fixed = FULL | {"async_steps": num_steps, "staggered": staggered}
    done = walk(SCHEDULERS, kind(), 1, max_operations=6_000, seconds=60, fixed=fixed)
    assert done.finding is None, done.finding
    assert done.coverage["preempted"] > 10
    assert done.coverage["waits for the token of a step under way"] > 0 or num_steps == 1 or kind is ComesBackAtOnce


@pytest.mark.parametrize(
    ("kind", "property"),
    [
        (RestsTooLong, "running-served"),
        (LetsAnyOvertake, "arrival-order"),
        (CutsPrompts, "admission-exact"),
        (ForgetsWhatIsUnderWay, "admission-exact"),
    ],
)
def test_a_scheduler_of_a_pipeline_that_errs_is_refuted(kind: type[Pipelined], property: str) -> None:
    done = walk(SCHEDULERS, kind(), 1, max_operations=6_000, seconds=60, fixed=FULL | {"async_steps": 2})
    assert done.finding is not None
    assert done.finding.property == property
