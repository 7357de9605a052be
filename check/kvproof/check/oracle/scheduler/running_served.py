"""Who runs is in each step that has room for it: judged after each step of a scheduler that declares `serves_running`.

A request runs if it was in a step and has its blocks. If it has a token to compute and is not in the step, the step
must have ended without a token, a place or a block left for it. The blocks are those that it needs at most for all its
tokens; the slack that the scheduler declares is added. Blocks that were released in the step count too: a scheduler
that takes blocks from one request serves the next ones with what is left of them.

These do not count against a scheduler:

- a step of a scheduler that is paused so that it serves nobody;
- a step that computes prompts, where prompts are not computed in chunks: it may leave all decodes to the next step;
- what those who leave in the step may have used of its budgets before they left;
- with the prefix cache and chunks that end at block boundaries, fewer tokens than a block has;
- with KV that comes and goes, a step in which somebody who runs lacks blocks: it may end there, and wait for blocks
  that a transfer or a step still uses;
- a step in which a request ended for lack of room, or gave up the blocks of a load that failed, perhaps at its end;
- with drafts and asynchronous steps, any step: positions are counted as if all drafts were accepted, up to a limit;
- where requests are left out of the steps after their own (`staggered`), one that was in one of the last
  `async_steps - 1` steps: it waits until the last stage of the pipeline has its token;
- with loads that fail, a request of which a step under way computes something in vain;
- with a room for the outputs of images, a request whose next token reads an output for which there may be no room, and
  a step that somebody leaves;
- a request that is over with a step under way: it has a token that nobody needs. The scheduler may not know this, and
  lack blocks for it.
"""

from typing import NamedTuple

from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.needed_blocks import cost_max
from kvproof.check.oracle.scheduler.base import SCHEDULE, ExpectedRequest, SchedulerState, unfinished
from kvproof.check.oracle.scheduler.encoder_outputs import EncoderOutputs
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import ScheduledStep
from kvproof.spec.text.budgets import PAUSED_ALL, is_within_budget, must_be_a_decode
from kvproof.spec.text.state import GPU


class Left(NamedTuple):
    """Who was preempted or swapped out in a step: the sequences, and the tokens of the step that they may have used."""

    num_tokens: int
    num_seqs: int
    requests: tuple[ExpectedRequest, ...] = ()
    has_begun_again: bool = False  # whether a sequence whose load failed gave its blocks up in the step


def judge_running_served(
    state: SchedulerState, step: ScheduledStep, left: Left, outputs: EncoderOutputs | None = None
) -> None:
    """Who runs and has a token to compute is in the step, unless tokens, places or blocks may be too few for it.

    outputs: of the images that the worker has, for which there may be no room.
    """
    config, capabilities = state.config, state.capabilities
    slack = capabilities.refusal_slack
    is_ahead = bool(config.async_steps and config.speculative_tokens)  # it may wait to learn what was rejected
    gives_room = bool(config.encoder_room and left.num_seqs)  # who leaves gives the room of its images back late
    is_unsure = is_ahead or gives_room or left.has_begun_again or state.paused == PAUSED_ALL
    if not capabilities.serves_running or slack is None or step.failed or is_unsure:
        return
    num_batched = sum([chunk.stop - chunk.start for chunk in step.chunks])
    num_tokens, num_seqs = num_batched + left.num_tokens, len(step.chunks) + left.num_seqs
    budgets = config.max_num_batched_tokens, config.max_num_seqs
    is_aligned = capabilities.block_aligned_chunks or state.oracle.has_states
    num_tokens_each = config.block_size if config.caching and is_aligned else 1
    if not is_within_budget(num_tokens + num_tokens_each, num_seqs + 1, *budgets) or _leaves_decodes_out(state, step):
        return
    passed_over, unused = None, state.explainer.unused_in(state.state, GPU)
    in_step = {chunk.seq for chunk in step.chunks}
    for request in unfinished(state.requests):
        members = [seq for seq in request.members if seq.id not in in_step and _has_a_token_to_compute(state, seq)]
        num_most = num_tokens + num_tokens_each * len(members), num_seqs + len(members)
        if not members or not is_within_budget(*num_most, *budgets):
            continue
        needed = cost_max(state.oracle, [(seq, len(seq.tokens)) for seq in members])
        if not state.explainer.machine.function("may_answer_ok")(needed + slack, unused, 0):
            if state.moves_kv:
                return
        elif not (_is_left_out(state, request) or _is_over(state, members) or _lacks_an_output(outputs, members)):
            passed_over = passed_over or (request, needed)
    if passed_over is not None:
        request, needed = passed_over
        raise Finding(
            "running-served",
            f"request {request.id} runs and is not in the step; it needs at most $observed blocks, $expected are free, "
            f"and the step computes {num_batched} tokens of {budgets[0]}",
            call=SCHEDULE,
            expected=unused,
            observed=needed,
        )


def _is_left_out(state: SchedulerState, request: ExpectedRequest) -> bool:
    """Whether the scheduler may leave the request out of this step, since it was in one of the last ones."""
    return state.config.staggered and request.newest_step > state.num_steps - state.config.async_steps


def _lacks_an_output(outputs: EncoderOutputs | None, members: list[ExpectedSequence]) -> bool:
    """Whether the output of an image that one of the sequences reads next may have no room."""
    return outputs is not None and any(outputs.may_wait(seq) for seq in members)


def _is_over(state: SchedulerState, members: list[ExpectedSequence]) -> bool:
    """Whether one of the sequences has all its tokens with a step under way, or computes something in vain by it."""
    return any(seq.id in under.over or seq.id in under.in_vain for seq in members for under in state.under_way)


def _leaves_decodes_out(state: SchedulerState, step: ScheduledStep) -> bool:
    """Whether the step computes prompts, and prompts are not computed in chunks."""
    return not state.config.chunked and not all(
        must_be_a_decode(chunk.stop, state.seqs[chunk.seq].num_prompt) for chunk in step.chunks
    )


def _has_a_token_to_compute(state: SchedulerState, seq: ExpectedSequence) -> bool:
    """Whether the sequence runs, and has a token whose KV no step computes."""
    return seq.status is Status.RUNNING and seq.num_unseen > 0 and seq.id not in state.without_slot
