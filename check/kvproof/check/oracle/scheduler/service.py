"""Who is let in first, and who is left waiting without need: judged after each step.

A scheduler declares its order (`Capabilities.policies`): FCFS by arrival, PRIORITY by importance and then by arrival.
Under both, no request that waits is admitted while one that ranks before it waits or is swapped out. A request that was
swapped out may come back before an earlier one that waits; how many later requests may be let in before it, in all, is
declared as `num_overtaken_max`.

Two kinds of requests may be overtaken and be left waiting. Where the adapters of a step are bounded (`max_loras`), it
is one that lacks a place for its own. With several steps ahead, it is one that was preempted while a step under way
computes it: it may wait for the token of this step. Those that overtook it may be preempted and come back before it, so
of them no order is demanded.

A scheduler that declares `preempts_last` takes blocks from those who rank last among the requests that run.

The request that ranks first among those that wait is left waiting without need if the step has room for it: its whole
prompt is within what is left of the budgets, there are places, and the blocks that it needs are free, but for the slack
that the scheduler declares. Where prompts are computed in chunks, a scheduler that declares `begins_prompts` needs no
more than one token that is left, or a block of them if chunks end with blocks. This is judged only of steps in which
nothing was preempted, ended or swapped.

A scheduler that declares `fills_steps` ends a chunk before the end of its prompt only where the step has no token left,
or where the step leaves a state.

A load from elsewhere lets a request wait, and nobody waits for it; so with transfers, neither is judged.

A scheduler that is paused serves only those who have blocks, or nobody; so nobody is left waiting without need.

A session that goes on waits with its blocks, and its scheduler decides how it ranks; so with sessions, neither is.

A request that is ended for lack of room is judged too.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvproof.check.oracle.expected import Status
from kvproof.check.oracle.hits import num_blocks_shared
from kvproof.check.oracle.needed_blocks import num_blocks_kept, num_blocks_needed
from kvproof.check.oracle.scheduler.base import SCHEDULE, ExpectedRequest, SchedulerState, unfinished
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import ScheduledStep, SchedulerConfig
from kvproof.spec.text.budgets import (
    PAUSED_ALL,
    exceeds_limits,
    has_places_for_adapters,
    have_places,
    is_served_in_order,
    is_within_budget,
    is_within_partial_prefills,
    may_be_served,
    may_stop_short,
    ranks_before,
)
from kvproof.spec.text.state import GPU


class HeldUp(NamedTuple):
    """A request that waits, or is swapped out, before a step."""

    request: ExpectedRequest
    was_waiting: bool


def held_up_in(state: SchedulerState) -> list[HeldUp]:
    """The requests that wait or are swapped out, by arrival."""
    return [
        HeldUp(request, status is Status.WAITING)
        for request in state.requests.values()
        if not request.is_doomed and (status := request.members[0].status) is not Status.RUNNING
    ]


def is_let_in(request: ExpectedRequest) -> bool:
    """Whether the members of the request have blocks on the GPU."""
    return request.members[0].status is Status.RUNNING


def judges_waiting(state: SchedulerState) -> bool:
    """Whether it is judged in this configuration that a request is left waiting without need."""
    config, can = state.config, state.capabilities
    return (
        can.refusal_slack is not None
        and bool(can.policies)
        and not (state.moves_kv or config.async_steps or config.encoder_room or config.sessions)
    )


def ranks_first(one: ExpectedRequest, other: ExpectedRequest) -> bool:
    """Whether the first request ranks before the other one."""
    return ranks_before(one.priority, one.arrival, other.priority, other.arrival)


def adapters_in(state: SchedulerState, step: ScheduledStep) -> set[int]:
    """The ids of the adapters of a step's sequences; empty where their number has no bound."""
    if not state.config.max_loras:
        return set()
    return {adapter for chunk in step.chunks if (adapter := state.seqs[chunk.seq].key.adapter_id)}


def lacks_place_for_adapter(state: SchedulerState, request: ExpectedRequest) -> bool:
    """Whether a request waits since those who run have all places for adapters; others may be let in meanwhile.

    Who runs and is not in the step may join the next one, so its adapter keeps a place.
    """
    adapter = request.members[0].key.adapter_id
    if not adapter or not state.config.max_loras:
        return False
    taken = {one.members[0].key.adapter_id for one in state.requests.values() if is_let_in(one)} - {0}
    if has_places_for_adapters(len(taken | {adapter}), state.config.max_loras):
        return False
    state.coverage["waits for a place for its adapter"] += 1
    return True


def _may_be_overtaken(config: SchedulerConfig) -> bool:
    """Whether there are requests that may be overtaken."""
    return config.max_loras > 0 or config.async_steps > 1 or config.encoder_room > 0


def _waits_for_its_token(state: SchedulerState, request: ExpectedRequest) -> bool:
    """Whether the request was preempted, and a step under way computes it."""
    waits = request.is_preempted and state.is_in_flight(request)
    state.coverage["waits for the token of a step under way"] += waits
    return waits


def judge_order(state: SchedulerState, held_up: Sequence[HeldUp]) -> None:
    """Later requests may not starve earlier ones. held_up: those that waited or were swapped before the step."""
    most, policies = state.capabilities.num_overtaken_max, state.capabilities.policies
    if state.moves_kv or state.config.encoder_room or state.config.sessions or not (policies or most is not None):
        return
    let_in = [one for one in held_up if one.request.members[0].status is Status.RUNNING]
    if not let_in:
        return
    for one, _ in held_up:
        if is_let_in(one):
            one.num_overtaken = 0
            continue
        if one.is_doomed or one.id not in state.requests:
            continue
        later = [other for other in let_in if ranks_first(one, other.request)]
        if _may_be_overtaken(state.config):
            later = [other for other in later if not other.request.is_preempted]
            if later and (lacks_place_for_adapter(state, one) or _waits_for_its_token(state, one)):
                continue
        admitted = [other.request for other in later if other.was_waiting]
        if policies and admitted:
            raise _out_of_order(
                one,
                f"request {admitted[0].id} was admitted before request {one.id}, which ranks before it and is "
                f"$status: the scheduler declares the order {state.config.policy}",
                expected=0,
                observed=len(admitted),
            )
        one.num_overtaken += len(later)
        if later and most is not None and not is_served_in_order(one.num_overtaken, most):
            raise _out_of_order(
                one,
                f"request {later[0].request.id} was let in before request {one.id}, which ranks before it and is "
                "$status: that one was overtaken $observed times, and the scheduler declares at most $expected",
                expected=most,
                observed=one.num_overtaken,
            )


def judge_preempted(state: SchedulerState, held_up: Sequence[HeldUp], left: Sequence[ExpectedRequest]) -> None:
    """Who is preempted or swapped out ranks after everyone who runs on, if the scheduler declares `preempts_last`.

    held_up: those that waited or were swapped before the step. left: those who ran and do not run on.
    """
    is_unordered = state.moves_kv or state.config.sessions
    if not (left and state.capabilities.preempts_last) or is_unordered or _may_be_overtaken(state.config):
        return
    came = {one.request.id for one in held_up}
    run_on = [one for one in unfinished(state.requests) if one.id not in came and is_let_in(one)]
    for one in left:
        later = next((other for other in run_on if ranks_first(one, other)), None)
        if later is not None and one.id in state.requests and not one.is_doomed:
            raise _out_of_order(
                one,
                f"request {one.id} is $status, and request {later.id}, which ranks after it, runs on: the scheduler "
                f"declares the order {state.config.policy}",
            )
        state.coverage["preempted while others run on"] += bool(run_on)


def _out_of_order(
    request: ExpectedRequest, sentence: str, expected: int | None = None, observed: int | None = None
) -> Finding:
    """The finding about a request to which a later one was preferred."""
    status = {"status": request.members[0].status.value}
    return Finding("arrival-order", sentence, call=SCHEDULE, values=status, expected=expected, observed=observed)


def judge_left_waiting(state: SchedulerState, step: ScheduledStep, held_up: Sequence[HeldUp], num_unused: int) -> None:
    """The request that ranks first is not left waiting while the step has room for all that it needs.

    num_unused: blocks of the GPU that were free before the step. Steps may free blocks after the admission was refused.
    """
    slack = state.capabilities.refusal_slack or 0
    if step.ignored or step.failed or step.swap_in:
        return
    if state.oracle.has_states and state.config.caching and step.chunks:
        return  # the step may compute the state that the request found: then it has to wait
    first = None
    for one, was_waiting in held_up:
        if not was_waiting:
            return
        if one.members[0].status is not Status.RUNNING and (first is None or ranks_first(one, first)):
            first = one
    if first is None or not _is_room_in_step(state, step, first):
        return
    needed = num_blocks_needed(state.oracle, first, state.oracle.lookahead)
    needed -= num_blocks_shared(state.oracle, first)
    unused = min(num_unused, state.explainer.unused_in(state.state, GPU))
    if state.explainer.machine.function("may_answer_ok")(needed + slack, unused, state.oracle.num_held_back):
        raise Finding(
            "admission-exact",
            f"request {first.id} is left waiting, but needs at most $observed blocks, $expected are free, and the "
            "step has room for its prompt",
            call=SCHEDULE,
            expected=unused,
            observed=needed,
        )


def judge_failed(state: SchedulerState, request: ExpectedRequest, known: Sequence[ExpectedRequest]) -> None:
    """A request may be ended for lack of room only if the pool cannot hold all requests, each at its full length.

    known: all requests before the step. A scheduler that does not declare its slack may find a pool too small in which
    others have blocks. Transfers and steps under way keep blocks of requests that are over.
    """
    slack, is_alone = state.capabilities.refusal_slack, len(known) == 1
    if state.moves_kv or state.under_way or (slack is None and not is_alone):
        return
    needed = sum(state.num_blocks_at_most(one) for one in known)
    usable = state.config.num_gpu_blocks - num_blocks_kept(state.oracle, request) - state.oracle.num_held_back
    if needed + (slack or 0) <= usable:
        who = "it needs" if is_alone else f"all {len(known)} requests need"
        raise Finding(
            "admission-final",
            f"request {request.id} is ended for lack of room, but $who at most $observed blocks of $expected",
            call=SCHEDULE,
            values={"who": who},
            expected=usable,
            observed=needed,
        )


def judge_paused(state: SchedulerState, step: ScheduledStep, held_up: Sequence[HeldUp]) -> None:
    """A paused scheduler serves only those who had blocks before the step, or nobody."""
    without_blocks = {seq.id for one in held_up for seq in one.request.members}
    for seq_id in (*(chunk.seq for chunk in step.chunks), *(load.seq for load in step.loads)):
        if not may_be_served(True, state.paused == PAUSED_ALL, seq_id not in without_blocks):
            who = "nobody is served" if state.paused == PAUSED_ALL else "nobody is let in"
            sentence = "$sequence is in a step of a scheduler that is paused: $who"
            name = f"sequence {seq_id}"
            raise Finding("budget-kept", sentence, call=SCHEDULE, sequence=name, values={"who": who})
    state.coverage["scheduled while paused"] += bool(state.requests)


def judge_cut_prompts(state: SchedulerState, step: ScheduledStep, num_tokens: int) -> None:
    """A scheduler that declares `fills_steps` computes all of a prompt that its step has tokens for.

    num_tokens: all tokens of the step.
    """
    limits = state.config.max_num_batched_tokens, state.config.long_prefill_threshold
    for chunk in step.chunks:
        seq, num_chunk = state.seqs[chunk.seq], chunk.stop - chunk.start
        if any(part.layout.may_stop_at(chunk.stop) for part in seq.parts):
            continue
        num_prompt = seq.num_prompt - state.num_tokens_ahead(seq.id)
        if chunk.stop < num_prompt and not may_stop_short(num_tokens, limits[0], num_chunk, limits[1]):
            raise Finding(
                "admission-exact",
                f"a step computes {num_chunk} tokens of $sequence and stops before the end of its prompt, though it "
                "has $observed tokens, and may have $expected",
                call=SCHEDULE,
                expected=limits[0],
                observed=num_tokens,
                sequence=seq.name,
            )


def judge_partial_prompts(state: SchedulerState, step: ScheduledStep) -> None:
    """Where prompts share the tokens of a step, it begins no more of them than may be computed in part.

    The bound on long prompts counts what is left of a prompt before the step, without what the cache has of it.
    """
    config, num_partial, num_long = state.config, 0, 0
    for chunk in step.chunks:
        num_prompt = state.seqs[chunk.seq].num_prompt
        num_partial += chunk.stop < num_prompt
        num_long += num_prompt - (0 if chunk.hit else chunk.start) > config.long_prompt
    limits = config.partial_prefills, config.long_partial_prefills
    if not is_within_partial_prefills(num_partial, num_long, *limits):
        has_too_many = num_partial > limits[0]
        raise Finding(
            "budget-kept",
            "a step leaves $observed prompts computed in part; at most $expected may be"
            if has_too_many
            else f"a step computes $observed prompts of which more than {config.long_prompt} tokens are left; at most "
            "$expected may be",
            call=SCHEDULE,
            expected=limits[not has_too_many],
            observed=num_partial if has_too_many else num_long,
        )


def _is_room_in_step(state: SchedulerState, step: ScheduledStep, request: ExpectedRequest) -> bool:
    """Whether the budgets of the step, and its places, have room for the part of the prompt that it must begin with."""
    config = state.config
    if lacks_place_for_adapter(state, request):
        return False
    num_tokens, num_members = len(request.members[0].tokens), len(request.members)
    budgets = config.max_num_batched_tokens, config.max_num_seqs
    if exceeds_limits(num_tokens, num_members, config.max_model_len, *budgets):
        return False
    num_batched = sum([chunk.stop - chunk.start for chunk in step.chunks])
    if config.chunked and state.capabilities.begins_prompts and num_members == 1:
        num_tokens = min(num_tokens, config.block_size if config.caching else 1)
    num_tokens += config.speculative_tokens  # an engine may begin a decode with as many rows as drafts need
    if not is_within_budget(num_batched + num_tokens, len(step.chunks) + num_members, *budgets):
        return False
    num_running = sum([len(one.members) for one in state.requests.values() if is_let_in(one)])
    return state.capabilities.bounds_only_steps or have_places(num_running + num_members, config.max_num_seqs)
