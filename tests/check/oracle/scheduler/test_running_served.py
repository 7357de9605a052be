"""Who runs is in each step that has a token, a place and blocks left for it."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from tests.check.oracle.scheduler.test_async_steps import Ahead
from tests.check.oracle.scheduler.test_transfers import Moves

from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.encoder_outputs import EncoderOutputs
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.oracle.scheduler.running_served import Left, judge_running_served
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.spec.text.identity import Image
from kvproof.spec.trace import Operation

STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]
SMALL = SchedulerConfig(1, 8, max_num_batched_tokens=8, max_num_seqs=2, max_model_len=8)
CHUNKS = replace(SMALL, chunked=True)


def add(request: int, num_tokens: int, max_tokens: int = 5, num_seqs: int = 1) -> Operation:
    seqs = tuple(range(10 * request, 10 * request + num_seqs))
    return "add", request, seqs, (1,) * num_tokens, max_tokens, (), (), None


TWO_RUN: list[Operation] = [add(1, 1), add(2, 1), *STEP]


class PassesOver(BuiltInScheduler):
    """The built-in scheduler; from its second step on it takes the last running request for one that does not run."""

    def next_step(self) -> tuple[Any, ScheduledStep]:
        if self.now < 2 or not len(self.scheduler.running):
            return super().next_step()
        group = self.scheduler.running[len(self.scheduler.running) - 1]
        arrival, _ = self.scheduler._requests[group.request_id]
        self.scheduler.running.remove(arrival)
        output = super().next_step()
        self.scheduler.running.add(arrival, group)
        return output


@pytest.mark.parametrize("config", [SMALL, CHUNKS])
def test_a_running_request_that_is_left_out_of_a_step_is_found(config: SchedulerConfig) -> None:
    finding = finding_of(PassesOver(), config, [*TWO_RUN, ("schedule",)])

    assert finding is not None
    assert (finding.property, finding.text) == (
        "running-served",
        "schedule(): request 2 runs and is not in the step; it needs at most 1 blocks, 5 are free, and the step "
        "computes 1 tokens of 8",
    )
    assert finding_of(BuiltInScheduler(), config, [*TWO_RUN, ("schedule",)]) is None


@pytest.mark.parametrize(
    ("capabilities", "config"),
    [
        ({"serves_running": False}, SMALL),
        ({"refusal_slack": None}, SMALL),
        ({"refusal_slack": 5}, SMALL),  # five blocks are free, and one is needed
        ({}, replace(SMALL, num_gpu_blocks=3)),  # the request that is served takes the last one
    ],
    ids=["undeclared", "no slack declared", "within the slack", "no block left"],
)
def test_it_is_not_judged_where_the_scheduler_may_lack_blocks(
    capabilities: dict[str, Any], config: SchedulerConfig
) -> None:
    subject = PassesOver()
    subject.capabilities = replace(BuiltInScheduler.capabilities, **capabilities)

    assert finding_of(subject, config, [*TWO_RUN, ("schedule",)]) is None


def test_a_step_that_computes_a_prompt_may_leave_the_decodes_out_unless_prompts_are_chunked() -> None:
    operations = [add(1, 1), *STEP, add(2, 1), ("schedule",)]

    assert finding_of(BuiltInScheduler(), SMALL, operations) is None
    finding = finding_of(PassesOver(), CHUNKS, operations)

    assert finding is not None
    assert finding.property == "running-served"


def test_a_step_without_a_token_left_for_a_group_may_leave_it_out() -> None:
    config = replace(SMALL, max_num_batched_tokens=2, max_num_seqs=2)
    fork: Operation = "complete", (0,), ((10, 11),)
    operations: list[Operation] = [add(1, 1), add(2, 1), ("schedule",), ("launch",), fork, ("schedule",)]

    assert finding_of(BuiltInScheduler(), config, operations) is None


@pytest.mark.parametrize("left", [Left(7, 0), Left(0, 1)], ids=["tokens", "places"])
def test_what_others_may_have_used_before_they_left_is_not_called_left(left: Left) -> None:
    judge = SchedulerJudge(BuiltInScheduler(), SMALL)
    for operation in TWO_RUN:
        judge.apply(operation)
    chunk = Chunk(10, 1, 2)

    with pytest.raises(Finding, match="request 2 runs and is not in the step"):
        judge_running_served(judge.scheduler, ScheduledStep([chunk]), Left(6, 0))
    judge_running_served(judge.scheduler, ScheduledStep([chunk]), left)


def test_a_step_in_which_a_request_ended_for_lack_of_room_may_leave_others_out() -> None:
    judge = SchedulerJudge(BuiltInScheduler(), SMALL)
    for operation in TWO_RUN:
        judge.apply(operation)

    judge_running_served(judge.scheduler, ScheduledStep(failed=[3]), Left(0, 0))


def test_with_a_cache_and_aligned_chunks_fewer_tokens_than_a_block_has_may_be_left() -> None:
    subject = PassesOver()
    subject.capabilities = replace(BuiltInScheduler.capabilities, block_aligned_chunks=True)
    config = replace(CHUNKS, block_size=4, caching=True, max_num_batched_tokens=4)

    assert finding_of(subject, config, [*TWO_RUN, ("schedule",)]) is None
    finding = finding_of(subject, replace(config, caching=False), [*TWO_RUN, ("schedule",)])

    assert finding is not None
    assert finding.property == "running-served"


# Steps ahead, and KV that comes and goes ------------------------------------------------------------------------------

AHEAD = replace(SMALL, async_steps=1)
NEXT: list[Operation] = [("schedule",), ("launch", (0,))]


class ServesAhead(Ahead):
    """A scheduler with a step under way; it takes the requests of `passed_over` for such as do not run."""

    capabilities = replace(Ahead.capabilities, serves_running=True, refusal_slack=0)

    def __init__(self, passed_over: set[int]) -> None:
        self.passed_over = passed_over

    def schedule(self) -> ScheduledStep:
        everyone = self.running
        if len(self.steps) == 1:
            self.running = [request for request in everyone if request.number not in self.passed_over]
        step = super().schedule()
        self.running = everyone
        return step


@pytest.mark.parametrize(("passed_over", "is_found"), [(set[int](), False), ({2}, True)])
def test_with_a_step_under_way_a_request_is_left_out_only_if_it_is_over_with_that_step(
    passed_over: set[int], is_found: bool
) -> None:
    operations: list[Operation] = [add(1, 1, 1), add(2, 1, 3), *NEXT, ("schedule",)]

    finding = finding_of(ServesAhead(passed_over), AHEAD, operations)

    assert (finding is not None and finding.text.startswith("schedule(): request 2 runs")) is is_found
    assert is_found or finding is None


class ServesWhileMoving(Moves):
    """A scheduler whose requests wait for KV from elsewhere; it is in a step of its own who has a token to compute."""

    capabilities = replace(Moves.capabilities, serves_running=True, refusal_slack=0)


def test_a_request_whose_kv_is_coming_does_not_run_yet() -> None:
    config = replace(SMALL, transfers=True)
    operations: list[Operation] = [(*add(1, 3), (2, False)), add(2, 1), *STEP, ("schedule",)]

    assert finding_of(ServesWhileMoving(), config, operations) is None


@pytest.mark.parametrize("moves_kv", [True, False])
def test_where_kv_comes_and_goes_a_step_may_end_at_a_request_that_lacks_blocks(moves_kv: bool) -> None:
    config = replace(SMALL, block_size=2, num_gpu_blocks=2)
    judge = SchedulerJudge(BuiltInScheduler(), config)
    for operation in [add(1, 2), add(2, 1), *STEP]:  # the first one fills its block, and needs another
        judge.apply(operation)
    judge.scheduler.moves_kv = moves_kv

    with nullcontext() if moves_kv else pytest.raises(Finding, match="request 2 runs and is not in the step"):
        judge_running_served(judge.scheduler, ScheduledStep(), Left(0, 0))


# A room for the outputs of images -------------------------------------------------------------------------------------

CAT, DOG = Image("cat", 0, 1), Image("dog", 1, 2)


def with_images(room: int, of_first: tuple[Image, ...] = (), of_waiting: tuple[Image, ...] = ()) -> EncoderOutputs:
    """Two requests run, of which the second one reads the image of a dog next, and one waits."""
    judge = SchedulerJudge(BuiltInScheduler(), SMALL)
    for operation in [*TWO_RUN, add(3, 1)]:
        judge.apply(operation)
    state = judge.scheduler
    state.config = replace(SMALL, encoder_room=room)
    for seq, images in ((10, of_first), (20, (DOG,)), (30, of_waiting)):
        state.seqs[seq].images = images
    return EncoderOutputs(state)


def passes_over_the_second(outputs: EncoderOutputs, num_left: int = 0, encodes: bool = False) -> bool:
    step = ScheduledStep([Chunk(10, 1, 2)], encoded=[(10, (0,))] if encodes else [])
    outputs.judge(step)
    try:
        judge_running_served(outputs.scheduler, step, Left(0, num_left), outputs)
    except Finding as finding:
        return finding.property == "running-served"
    return False


def test_images_of_those_who_run_may_have_the_room_until_they_end() -> None:
    assert not passes_over_the_second(with_images(2, of_first=(CAT,)))
    assert passes_over_the_second(with_images(3, of_first=(CAT,)))


def test_images_of_the_step_have_the_room() -> None:
    new = (Image("bird", 1, 1),)

    assert not passes_over_the_second(with_images(2, of_first=new), encodes=True)
    assert passes_over_the_second(with_images(3, of_first=new), encodes=True)


def test_the_image_of_a_request_that_waits_takes_no_room() -> None:
    outputs = with_images(2, of_waiting=(CAT,))
    outputs.there["cat"] = 1

    assert passes_over_the_second(outputs)
    assert not passes_over_the_second(outputs, num_left=1)  # its image may have had the room


def test_an_output_that_is_there_is_no_reason_to_wait() -> None:
    outputs = with_images(2, of_first=(CAT,))
    assert not passes_over_the_second(outputs)

    outputs.there["dog"] = 2
    assert passes_over_the_second(outputs)
