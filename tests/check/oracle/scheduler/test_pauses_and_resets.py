"""Between steps a scheduler is paused, goes on, and is reset: who is served then, and what is begun again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import ScheduledStep, SchedulerConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find
from kvproof.impl.scheduler import SchedulerOutputs
from kvproof.impl.scheduler_queues import ArrivalQueue
from kvproof.spec.text.budgets import PAUSED_ALL, PAUSED_NEW, may_be_served
from kvproof.spec.trace import Operation


class Interrupted(BuiltInScheduler):
    """The built-in scheduler; who is swapped out has no blocks on the device, and waits too while it is paused."""

    capabilities = replace(
        BuiltInScheduler.capabilities, pauses=True, reset=True, swap=False, watermark=False, fork=False, cross=False
    )
    paused = ""

    def make(self, config: SchedulerConfig) -> Any:
        if config.group_size > 1:
            raise Unsupported("single sequences only")
        self.paused = ""
        return super().make(config)

    def pause(self, state: str) -> None:
        self.paused = state

    def next_step(self) -> tuple[Any, ScheduledStep]:
        if self.paused == PAUSED_ALL:
            return SchedulerOutputs(), ScheduledStep(prompts=[])
        if not self.paused:
            return super().next_step()
        waiting, self.scheduler.waiting = self.scheduler.waiting, ArrivalQueue()
        output = super().next_step()
        for group in self.scheduler.waiting:  # was preempted in the step
            waiting.add(self.scheduler._requests[group.request_id][0], group)
        self.scheduler.waiting = waiting
        return output

    def reset_caches(self, preempts: bool, keeps_host: bool = False) -> bool:
        if preempts:
            for group in [*self.scheduler.running][::-1]:
                self.scheduler._preempt(group, SchedulerOutputs())
        return bool(self.manager.reset_prefix_cache())


class LetsIn(Interrupted):
    """Who waits is let in while nobody shall be."""

    def pause(self, state: str) -> None:
        self.paused = "" if state == PAUSED_NEW else state


class Serves(Interrupted):
    """Those who run are served while nobody shall be."""

    def pause(self, state: str) -> None:
        self.paused = PAUSED_NEW if state else ""


class NeverGoesOn(Interrupted):
    """It stays paused."""

    def pause(self, state: str) -> None:
        self.paused = state or self.paused


class Denies(Interrupted):
    """It resets, and says that it did not."""

    def reset_caches(self, preempts: bool, keeps_host: bool = False) -> bool:
        return not super().reset_caches(preempts)


class Boasts(Interrupted):
    """It says that it has reset, whatever is in use."""

    def reset_caches(self, preempts: bool, keeps_host: bool = False) -> bool:
        super().reset_caches(preempts)
        return True


class KeepsTheCache(Interrupted):
    """It says that it has reset, and does nothing."""

    def reset_caches(self, preempts: bool, keeps_host: bool = False) -> bool:
        done = not [*self.scheduler.running]
        return done or (super().reset_caches(preempts) if preempts else False)


CONFIG = SchedulerConfig(1, 8, max_num_batched_tokens=8, max_num_seqs=4, max_model_len=8, pauses=True, resets=True)
STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]
FIXED = {"pauses": True, "resets": True}


def add(request: int, num_tokens: int = 1) -> Operation:
    return "add", request, (10 * request,), (1,) * num_tokens, 5, (), (), None


def test_a_scheduler_that_obeys_is_not_refuted_and_the_witnesses_are_reached() -> None:
    done = walk(SCHEDULERS, Interrupted(), 1, max_operations=3_000, seconds=60, fixed=FIXED)

    assert done.finding is None, done.finding
    names = "scheduled while paused", "paused, nobody is served", "paused, nobody is let in"
    assert all(done.coverage[name] > 5 for name in (*names, "reset, and those who run begin again"))


@pytest.mark.parametrize(
    ("faulty", "operations", "text"),
    [
        (
            LetsIn,
            [add(1), *STEP, ("pause", False), add(2), ("schedule",)],
            "schedule(): sequence 20 is in a step of a scheduler that is paused: nobody is let in",
        ),
        (
            Serves,
            [add(1), *STEP, ("pause", True), ("schedule",)],
            "schedule(): sequence 10 is in a step of a scheduler that is paused: nobody is served",
        ),
        (
            NeverGoesOn,
            [add(1), ("pause", True), ("go_on",), ("schedule",)],
            "schedule(): nothing runs, and request 1, waiting, 1 tokens, is neither scheduled nor ended",
        ),
        (Denies, [("reset_caches",)], "reset_caches() was refused although nothing is held"),
        (Boasts, [add(1), *STEP, ("reset_caches",)], "reset_caches() was done although blocks are in use"),
    ],
)
def test_a_scheduler_that_does_not_obey_is_refuted(
    faulty: Callable[[], Interrupted], operations: list[Operation], text: str
) -> None:
    finding = finding_of(faulty(), CONFIG, operations)

    assert finding is not None
    assert finding.text == text
    assert finding_of(Interrupted(), CONFIG, operations) is None


def test_what_is_hit_after_a_reset_is_found() -> None:
    config = replace(CONFIG, caching=True)
    operations = [add(1, 3), *STEP, ("abort", 1), ("reset_caches",), add(2, 3), ("schedule",)]

    finding = finding_of(KeepsTheCache(), config, operations)
    assert finding is not None
    assert finding.property in ("hit-computed", "no-use-after-free", "sharing-equal", "evict-unreferenced")
    assert finding_of(Interrupted(), config, operations) is None


def test_who_runs_when_all_are_preempted_begins_again_with_all_its_tokens() -> None:
    judge = SchedulerJudge(Interrupted(), CONFIG)
    assert all(judge.apply(one) for one in [add(1), *STEP, ("reset_caches", True), ("schedule",)])
    assert judge.answer == "sequence 10: 0 to 2"


@pytest.mark.parametrize("operation", [("pause",), ("go_on",), ("reset_caches",)])
def test_nothing_is_asked_while_the_engine_waits_for_a_step(operation: Operation) -> None:
    judge = SchedulerJudge(Interrupted(), CONFIG)
    for one in [add(1), ("pause",), ("schedule",)]:
        assert judge.apply(one)
    assert not judge.apply(operation)
    assert all(judge.apply(one) for one in [("launch",), ("complete", (0,)), operation])


def test_after_stop_a_paused_scheduler_goes_on_and_nobody_is_preempted_by_a_reset() -> None:
    judge = SchedulerJudge(Interrupted(), CONFIG)
    assert all(judge.apply(one) for one in [add(1), ("pause", True), *STEP, ("stop",)])
    assert not any(judge.apply(one) for one in [("pause",), ("go_on",), ("reset_caches", True)])
    assert judge.apply(("drain", (0,)))
    assert judge.is_done()


@pytest.mark.parametrize("field", ["pauses", "resets"])
def test_a_scheduler_that_does_not_declare_it_is_not_asked(field: str) -> None:
    config = replace(SchedulerConfig(), **{field: True})  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match=r"cannot be paused|cannot be reset"):
        SchedulerJudge(BuiltInScheduler(), config)


def test_who_has_blocks_is_served_unless_nobody_is() -> None:
    states = [(is_paused, all_of, has) for is_paused in (0, 1) for all_of in (0, 1) for has in (0, 1)]
    served = [state for state in states if may_be_served(*map(bool, state))]
    assert served == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 1)]


AHEAD = replace(CONFIG, num_gpu_blocks=10, async_steps=1)
RELEASE = "0.33.0"


@pytest.mark.engine
def test_the_token_of_a_step_under_way_is_lost_by_a_reset_and_sampled_again() -> None:
    download.add(f"vllm=={RELEASE}")
    subject: Any = find(f"vllm-v1-scheduler=={RELEASE}")()
    judge = SchedulerJudge(subject, AHEAD)

    run: list[Operation] = [add(1), ("schedule",), ("launch", (3,)), ("reset_caches", True), ("schedule",)]
    assert all(judge.apply(one) for one in run)
    assert (judge.answer, judge.coverage["token lost by a reset"]) == ("sequence 10: 0 to 1", 1)
    assert all(judge.apply(one) for one in [("launch", (4,)), ("complete", (0,)), ("complete", (0,))])
    assert judge.seqs[10].tokens == [1, 3]
    assert judge.apply(("drain", (0,)))
    assert judge.is_done()
