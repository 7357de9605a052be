"""Who is let in first, who is left waiting, how requests end, and what a step says about its chunks and its forks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.planting import in_memory
from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import ScheduledStep, SchedulerConfig
from kvproof.check.search.configurations import draw_for_scheduler
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.spec.text.budgets import (
    FCFS,
    PRIORITY,
    is_within_partial_prefills,
    is_within_threshold,
    num_steps_max,
    prompt_tokens_in_step,
)
from kvproof.spec.trace import Operation

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]
STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]
SCHEDULER, QUEUES = "impl/kvproof/impl/scheduler.py", "impl/kvproof/impl/scheduler_queues.py"


def add(request: int, num_tokens: int, max_tokens: int = 1, num_seqs: int = 1, *more: Any) -> Operation:
    seqs = tuple(range(10 * request, 10 * request + num_seqs))
    return "add", request, seqs, (1,) * num_tokens, max_tokens, (), (), None, *more


def fault(
    function: str,
    line: str,
    replacement: str,
    config: SchedulerConfig,
    operations: list[Operation],
    property: str,
    text: str,
    module: str = SCHEDULER,
) -> Fault:
    """The fault with the shortest run that shows it, and what the judge says."""
    run = {"config": config, "operations": operations, "text": text}
    return Fault("", (Edit(function, line, replacement, module),), found_by=(property,), settings=run)


FAULTS = {
    "a prompt is admitted while an earlier request is swapped out": fault(
        "Scheduler.schedule",
        "if config.chunked_prefill_enabled and not self.swapped:",
        "if config.chunked_prefill_enabled:",
        SchedulerConfig(2, 5, 1, lookahead=1, chunked=True, group_size=2, max_num_seqs=4, max_model_len=4),
        [add(4, 1, 3, 2), add(6, 1, 2, 2), add(8, 1), *STEP * 2, ("schedule",)],
        "arrival-order",
        "request 8 was admitted before request 6, which ranks before it and is swapped",
    ),
    "the next request is preempted and not the last": fault(
        "Scheduler._run_on",
        "self._preempt(groups[end], outputs)",
        "self._preempt(groups.pop(min(index + 1, end)), outputs)",
        SchedulerConfig(1, 4),
        [add(1, 1, 3), add(2, 2, 3), add(3, 1, 3), *STEP, ("schedule",)],
        "arrival-order",
        "request 2 is waiting, and request 3, which ranks after it, runs on: the scheduler declares the order fcfs",
    ),
    "a prompt is admitted, and its lookahead has no room": fault(
        "Scheduler._admit_prompts",
        "config.num_lookahead_slots)",
        "0)",
        SchedulerConfig(1, 2, lookahead=1),
        [add(1, 1), add(2, 1), ("schedule",)],
        "admission-sound",
        "sequence 20 was admitted, and 0 blocks are left; 1 more are needed for its lookahead",
    ),
    "a decode gets no lookahead slots": fault(
        "Scheduler._next_tokens",
        "ScheduledSequenceGroup(group, 1, 0, lookahead)",
        "ScheduledSequenceGroup(group, 1, 0, 0)",
        SchedulerConfig(1, 3, lookahead=1),
        [add(1, 1, 2), *STEP, ("schedule",)],
        "read-back",
        "computes up to 2, and 1 slots of lookahead beyond, and has 2 slots",
    ),
    "the last token of a prompt is scheduled as a decode": fault(
        "Scheduler._next_tokens",
        "num_new == 1 and not seqs[0].is_prefill()",
        "num_new == 1",
        SchedulerConfig(1, 3, chunked=True, max_num_seqs=2, max_num_batched_tokens=2),
        [add(1, 3), *STEP, ("schedule",)],
        "read-back",
        "positions 2 to 2 of sequence 10 are in the step as a decode; they are a part of a prompt",
    ),
    "a decode is scheduled as a part of a prompt": fault(
        "Scheduler.schedule",
        "outputs.num_prefill_groups = len(prefills)",
        "outputs.num_prefill_groups = len(prefills + decodes)",
        SchedulerConfig(),
        [add(1, 3, 2), *STEP, ("schedule",)],
        "read-back",
        "positions 3 to 3 of sequence 10 are in the step as a part of a prompt; they are a decode",
    ),
    "a fork makes a request that no step can run": fault(
        "SchedulerQueues.fork_seq",
        "1 + sum(seq is not child_seq",
        "sum(seq is not child_seq",
        SchedulerConfig(max_num_seqs=1),
        [add(1, 1, 2), ("schedule",), ("launch",), ("complete", (0,), ((10, 11),))],
        "progress",
        "a fork of sequence 10 makes a request of more than 1 sequences, which no step runs",
        QUEUES,
    ),
    "a fork is refused that a step can run": fault(
        "SchedulerQueues.fork_seq",
        "1 + sum(seq is not child_seq",
        "2 + sum(seq is not child_seq",
        SchedulerConfig(max_num_seqs=2),
        [add(1, 1, 2), ("schedule",), ("launch",), ("complete", (0,), ((10, 11),))],
        "admission-exact",
        "a fork of sequence 10 was refused, and a step can run it",
        QUEUES,
    ),
    "an aborted request keeps its status": fault(
        "SchedulerQueues._end",
        "seq.status = status",
        "pass",
        SchedulerConfig(),
        [add(1, 1), ("abort", 1)],
        "progress",
        "request 1 is reported as WAITING, and is aborted",
        QUEUES,
    ),
    "a request that was ignored is called too long for the pool": fault(
        "Scheduler._give_up",
        "if has_produced else",
        "if not has_produced else",
        SchedulerConfig(max_model_len=2),
        [add(1, 3), ("schedule",)],
        "progress",
        "request 1 is reported as capped, and is ignored",
    ),
    "a prompt for which there is room is left waiting": fault(
        "Scheduler.schedule",
        "if not config.chunked_prefill_enabled and not self.swapped:",
        "if not config.chunked_prefill_enabled and not self.running:",
        SchedulerConfig(),
        [add(1, 1, 2), *STEP, add(2, 1), ("schedule",)],
        "admission-exact",
        "request 2 is left waiting, but needs at most 1 blocks, 7 are free",
    ),
    "a chunk stops short of its prompt": fault(
        "Scheduler._admit_prompts",
        "min(num_new, budget.num_tokens_left)",
        "min(num_new, budget.num_tokens_left - 1)",
        SchedulerConfig(chunked=True, max_num_batched_tokens=4, max_num_seqs=4),
        [add(1, 6), ("schedule",)],
        "admission-exact",
        "computes 3 tokens of sequence 10 and stops before the end of its prompt, though it has 3 tokens, and may have",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_named(name: str) -> None:
    fault = FAULTS[name]
    config, operations, text = (fault.settings[one] for one in ("config", "operations", "text"))
    with in_memory(fault.plant[0]):
        finding = finding_of(BuiltInScheduler(), config, operations)

    assert finding is not None
    assert ((finding.property,), text in finding.text) == (fault.found_by, True), finding.text
    assert finding_of(BuiltInScheduler(), config, operations) is None


def test_a_scheduler_that_does_not_declare_whom_it_preempts_may_preempt_anybody() -> None:
    class Undeclared(BuiltInScheduler):
        capabilities = replace(BuiltInScheduler.capabilities, preempts_last=False)

    fault = FAULTS["the next request is preempted and not the last"]
    with in_memory(fault.plant[0]):
        assert finding_of(Undeclared(), fault.settings["config"], fault.settings["operations"]) is None


# Priorities ---------------------------------------------------------------------------------------------------------


class ByPriority(BuiltInScheduler):
    """The built-in scheduler; it gets the requests of a step in the order of their priorities, if `heeds` is true."""

    capabilities = BuiltInScheduler.capabilities.__class__(
        **{**vars(BuiltInScheduler.capabilities), "policies": (FCFS, PRIORITY), "num_overtaken_max": None}
    )

    def __init__(self, heeds: bool) -> None:
        super().__init__()
        self.heeds, self.coming, self.priorities = heeds, list[Any](), dict[int, int]()

    def prioritize(self, request: int, priority: int) -> None:
        self.priorities[request] = priority

    def add(self, request: Any) -> None:
        self.coming.append(request)

    def next_step(self) -> Any:
        if self.heeds:
            self.coming.sort(key=lambda request: self.priorities.get(request.number, 0))
        for request in self.coming:
            super().add(request)
        self.coming.clear()
        return super().next_step()


@pytest.mark.parametrize(("heeds", "expected"), [(True, None), (False, "arrival-order")])
def test_under_the_order_of_priorities_the_important_request_is_first(heeds: bool, expected: str | None) -> None:
    config = SchedulerConfig(policy=PRIORITY, max_num_seqs=1)
    operations = [add(1, 1, 1, 1, (0, False), 2), add(2, 1, 1, 1, (0, False), 0), ("schedule",)]

    finding = finding_of(ByPriority(heeds), config, operations)

    assert (finding.property if finding else None) == expected


def test_an_order_that_a_scheduler_does_not_declare_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="does not declare the order priority"):
        SchedulerJudge(BuiltInScheduler(), SchedulerConfig(policy=PRIORITY))


# The threshold of long prompts ----------------------------------------------------------------------------------------


def test_the_threshold_bounds_the_tokens_of_one_prompt_unless_the_request_is_alone() -> None:
    assert is_within_threshold(4, 4, 2)
    assert not is_within_threshold(5, 4, 2)
    assert is_within_threshold(5, 4, 1)
    assert is_within_threshold(5, 0, 2)


def test_with_a_threshold_a_prompt_may_take_more_steps() -> None:
    assert prompt_tokens_in_step(8, 0) == prompt_tokens_in_step(8, 9) == 8
    assert prompt_tokens_in_step(8, 3) == 3
    assert num_steps_max(1, 8, prompt_tokens_in_step(8, 3), 0) > num_steps_max(1, 8, prompt_tokens_in_step(8, 0), 0)


class NoThreshold(BuiltInScheduler):
    """A scheduler that does not look at the threshold."""

    capabilities = BuiltInScheduler.capabilities.__class__(
        **{**vars(BuiltInScheduler.capabilities), "long_prefills": True}
    )


def test_a_longer_chunk_of_one_prompt_is_found() -> None:
    operations = [add(1, 4), add(2, 4), ("schedule",)]
    config = SchedulerConfig(chunked=True, long_prefill_threshold=3)

    finding = finding_of(NoThreshold(), config, operations)

    assert finding is not None
    assert (finding.property, "computes 4 tokens of sequence 10" in finding.text) == ("budget-kept", True)
    random = Random(1)
    drawn = [draw_for_scheduler(random, NoThreshold.capabilities) for _ in range(60)]
    assert any(config.long_prefill_threshold for config in drawn)
    assert not any(config.long_prefill_threshold for config in drawn if not config.chunked)


class SharesNoTokens(BuiltInScheduler):
    """A scheduler that takes a number of prompts to be computed in part, and does not look at it."""

    capabilities = replace(BuiltInScheduler.capabilities, partial_prefills=3)


@pytest.mark.parametrize(("length", "is_refuted"), [(8, False), (9, True)])
def test_prompts_that_share_a_step_are_not_all_long(length: int, is_refuted: bool) -> None:
    config = SchedulerConfig(4, 64, max_num_batched_tokens=12, max_num_seqs=4, max_model_len=16, chunked=True)
    operations: list[Operation] = [add(1, length), add(2, 9), ("schedule",)]
    judge = SchedulerJudge(SharesNoTokens(), replace(config, partial_prefills=2))
    with pytest.raises(Finding, match="2 prompts of which more than 8 tokens") if is_refuted else nullcontext():
        for operation in operations:
            assert judge.apply(operation)


def test_more_prompts_than_configured_are_not_computed_in_part() -> None:
    assert is_within_partial_prefills(2, 1, 2, 1)
    assert not is_within_partial_prefills(3, 1, 2, 1)
    assert not is_within_partial_prefills(2, 2, 2, 1)


def test_prompts_that_share_a_step_are_drawn_and_refused_by_what_is_declared() -> None:
    random = Random(1)
    drawn = [draw_for_scheduler(random, SharesNoTokens.capabilities) for _ in range(60)]

    assert {config.partial_prefills for config in drawn if config.chunked} == {1, 2, 3}
    assert {config.partial_prefills for config in drawn if not config.chunked} == {1}
    with pytest.raises(Unsupported, match="does not compute that many prompts in part"):
        SchedulerJudge(BuiltInScheduler(), SchedulerConfig(chunked=True, partial_prefills=2))


class GivesBlocksWithoutTokens(BuiltInScheduler):
    """A scheduler whose step computes one sequence too many, but for the last ones, which only get their blocks."""

    capabilities = replace(BuiltInScheduler.capabilities, bounds_only_steps=True, fills_steps=False)

    def __init__(self, num_waiting: int) -> None:
        super().__init__()
        self.num_waiting = num_waiting

    def make(self, config: SchedulerConfig) -> Any:
        return super().make(replace(config, max_num_seqs=config.max_num_seqs + 1))

    def next_step(self) -> tuple[Any, ScheduledStep]:
        output, step = super().next_step()
        computed = len(step.chunks) - self.num_waiting
        chunks = [chunk._replace(stop=chunk.start) for chunk in step.chunks[computed:]]
        return output, step._replace(chunks=[*step.chunks[:computed], *chunks])


def test_who_only_gets_blocks_does_not_count_among_the_sequences_of_a_step() -> None:
    config = SchedulerConfig(1, 8, max_num_seqs=1, max_num_batched_tokens=8, max_model_len=8)
    operations: list[Operation] = [add(1, 1), add(2, 1), ("schedule",)]

    assert finding_of(GivesBlocksWithoutTokens(1), config, operations) is None
    finding = finding_of(GivesBlocksWithoutTokens(0), config, operations)

    assert finding is not None
    assert (finding.property, finding.text) == (
        "budget-kept",
        "schedule(): 2 tokens of 2 sequences; a step has at most 8 tokens of 1",
    )


# Requests that are ended for lack of room -----------------------------------------------------------------------------


class GivesUp(BuiltInScheduler):
    """A scheduler that ends every request from its second step on, for lack of room."""

    def __init__(self, slack: int | None) -> None:
        super().__init__()
        self.capabilities = replace(
            BuiltInScheduler.capabilities, refusal_slack=slack, policies=(), preempts_as_set=False
        )

    def next_step(self) -> tuple[Any, ScheduledStep]:
        ended = [] if self.now == 1 else list(self.requests)
        for number in ended:
            self.cancel(self.requests[number])
        output, step = super().next_step()
        return output, step._replace(failed=ended)


TOO_MANY = "request 1 is ended for lack of room, but all 2 requests need at most 9 blocks of {}"


@pytest.mark.parametrize(
    ("num_blocks", "slack", "operations", "expected"),
    [
        (9, 0, [add(1, 2, 3), *STEP, add(2, 2, 1), ("schedule",)], TOO_MANY.format(9)),
        (10, 1, [add(1, 2, 3), *STEP, add(2, 2, 1), ("schedule",)], TOO_MANY.format(10)),
        (9, 1, [add(1, 2, 3), *STEP, add(2, 2, 1), ("schedule",)], None),
        (8, 0, [add(1, 2, 3), *STEP, add(2, 2, 1), ("schedule",)], None),
        (10, None, [add(1, 2, 3), *STEP, add(2, 2, 1), ("schedule",)], None),  # with others, it may refuse anything
        (3, None, [*STEP, add(1, 1, 1), ("schedule",)], "request 1 is ended for lack of room, but it needs at most 3"),
        (2, None, [*STEP, add(1, 1, 1), ("schedule",)], None),
        (3, 0, [*STEP, add(1, 1, 9), ("schedule",)], None),
    ],
)
def test_a_request_is_ended_for_lack_of_room_only_if_there_may_be_none(
    num_blocks: int, slack: int | None, operations: list[Operation], expected: str | None
) -> None:
    config = SchedulerConfig(2, num_blocks, max_model_len=8)
    finding = finding_of(GivesUp(slack), config, operations)
    if expected is None:
        assert finding is None, finding
    else:
        assert finding is not None
        assert (finding.property, expected in finding.text) == ("admission-final", True), finding.text


class BeginsWholePrompts(BuiltInScheduler):
    """A scheduler that computes no prompt in part, and lets it wait for a step that has room for all of it."""

    def make(self, config: SchedulerConfig) -> Any:
        return super().make(replace(config, chunked=False))


class SaysSo(BeginsWholePrompts):
    capabilities = replace(BuiltInScheduler.capabilities, begins_prompts=False)


@pytest.mark.parametrize(
    ("subject", "is_found"), [(BeginsWholePrompts, True), (SaysSo, False), (BuiltInScheduler, False)]
)
def test_a_prompt_that_a_step_could_begin_does_not_wait(subject: type[BuiltInScheduler], is_found: bool) -> None:
    config = SchedulerConfig(1, 16, chunked=True, max_num_seqs=2, max_num_batched_tokens=8, max_model_len=8)
    finding = finding_of(subject(), config, [add(1, 5), add(2, 5), ("schedule",)])
    assert (finding is not None) is is_found
    assert finding is None or finding.property == "admission-exact"
