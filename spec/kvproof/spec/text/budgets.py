"""The budgets of a scheduler's step, the limits of a request, and how long requests may take. Lengths are in tokens.

A step *gains* if it samples a token or ends a request. Between two gains a scheduler may need steps without one:

- at most `ceil(L / B)` that compute chunks of a prompt, where L is the greatest length of a sequence in tokens and B is
  the most tokens of one prompt that a step computes: the token budget, or the threshold of long prompts. A prompt that
  is begun and dropped again was dropped for another one that gained, or for itself;
- one that only preempts, because the group that should continue cannot, not even alone;
- one that only swaps out.

So G gains take at most `G * (ceil(L / B) + 2)` steps, and one more step finds that all is done. The bound assumes that
a preempted request does not come back before another one gained. That holds if requests are served in the order of
arrival. A scheduler with another order that exceeds the bound lets a request wait without a reason known here.

If steps may be under way when the next one is scheduled, a step may be empty because every request waits for them: at
most one for each such step after each step that is not empty.
"""

from kvproof.spec.language import function, predicate

FCFS, PRIORITY = POLICIES = "fcfs", "priority"  # the orders in which a scheduler may let requests in
SWAP = "swap"  # what preemption may be set to: a request of one sequence is swapped out, too
PAUSED_NEW, PAUSED_ALL = PAUSES = "new", "all"  # a paused scheduler lets nobody in, or serves nobody


@predicate
def is_within_budget(num_tokens: int, num_seqs: int, max_num_batched_tokens: int, max_num_seqs: int) -> bool:
    """A step computes at most `max_num_batched_tokens` tokens, for at most `max_num_seqs` sequences."""
    return num_tokens <= max_num_batched_tokens and num_seqs <= max_num_seqs


@predicate
def have_places(num_running: int, max_num_seqs: int) -> bool:
    """After an admission or a swap-in, at most `max_num_seqs` sequences run."""
    return num_running <= max_num_seqs


@predicate
def exceeds_limits(
    num_tokens: int, num_members: int, max_model_len: int, max_num_batched_tokens: int, max_num_seqs: int
) -> bool:
    """No step can run the request: it is too long, or has more members than a step has sequences.

    The members of a request share one prompt, which is computed in a single step.
    """
    return (
        num_tokens > max_model_len
        or num_members > max_num_seqs
        or (num_members > 1 and num_tokens > max_num_batched_tokens)
    )


@predicate
def fits_a_step(num_members: int, max_num_seqs: int) -> bool:
    """A step has a place for each member of the request; a fork that makes it larger is refused."""
    return num_members <= max_num_seqs


@function
def slots_behind(num_tokens: int, num_lookahead: int, max_model_len: int) -> int:
    """Slots behind the first `num_tokens` tokens in which a draft model writes: it stops at the greatest length."""
    return (
        0
        if num_tokens >= max_model_len
        else num_lookahead
        if num_tokens + num_lookahead <= max_model_len
        else max_model_len - num_tokens
    )


@function
def num_to_generate(num_prompt: int, max_tokens: int, max_model_len: int) -> int:
    """How many tokens a sequence gets at most: what was asked for, up to the model's length; a prompt gets one."""
    return (
        max_tokens
        if num_prompt + max_tokens <= max_model_len
        else max_model_len - num_prompt
        if num_prompt < max_model_len
        else 1
    )


@predicate
def may_be_a_decode(start: int, stop: int, num_prompt: int) -> bool:
    """A chunk computes one token behind the prompt that its user sent; a decode computes no more."""
    return start >= num_prompt and stop == start + 1


@predicate
def must_be_a_decode(stop: int, num_at_admission: int) -> bool:
    """A chunk computes a token that was sampled after the admission.

    After a preemption by recomputation a scheduler may treat all known tokens as the prompt, or the sent ones only.
    """
    return stop > num_at_admission


@predicate
def may_recompute(num_members: int) -> bool:
    """Only a request with one member may be preempted by recomputation: several have no prompt in common."""
    return num_members == 1


@predicate
def may_be_swapped_out(num_members: int, is_set_to_swap: bool) -> bool:
    """A request with one member is swapped out only where preemption is set to swap; else it is computed again.

    Source: `Scheduler._preempt` of vLLM's V0 line.
    """
    return is_set_to_swap or not may_recompute(num_members)


@predicate
def may_be_computed_again(is_set_to_swap: bool, num_blocks: int, num_free_host: int) -> bool:
    """Where preemption is set to swap, a request is computed again only if the host lacks room for its blocks."""
    return not is_set_to_swap or num_blocks > num_free_host


@predicate
def may_end_for_lack_of_room(num_members: int) -> bool:
    """A request that can be computed again is not ended because the host has no room for it."""
    return not may_recompute(num_members)


@predicate
def is_served_in_order(num_overtaken: int, num_overtaken_max: int) -> bool:
    """While a request waits or is swapped, only a bounded number of later ones is let in; with 0, none is."""
    return num_overtaken <= num_overtaken_max


@predicate
def ranks_before(priority: int, arrival: int, other_priority: int, other_arrival: int) -> bool:
    """The request is served before the other one: it has a smaller priority, or an equal one and arrived earlier.

    First come, first served is the order of requests that all have one priority.
    Source: `SchedulerConfig.policy` of vLLM, "fcfs" and "priority".
    """
    return priority < other_priority or (priority == other_priority and arrival < other_arrival)


@predicate
def is_within_threshold(num_tokens: int, long_prefill_threshold: int, num_requests: int) -> bool:
    """A step computes at most so many tokens of one prompt; 0 sets no bound. A request that is alone needs none.

    Source: `SchedulerConfig.long_prefill_token_threshold` of vLLM's V1 line; from 0.33 on it spares a single request.
    """
    return long_prefill_threshold == 0 or num_requests == 1 or num_tokens <= long_prefill_threshold


@predicate
def may_be_served(is_paused: bool, serves_nobody: bool, has_blocks: bool) -> bool:
    """A paused scheduler serves only requests that have blocks, or nobody.

    Source: `PauseState` of vLLM, which is set while weights are updated.
    """
    return not is_paused or (not serves_nobody and has_blocks)


@predicate
def has_places_for_adapters(num_adapters: int, max_loras: int) -> bool:
    """The sequences of a step have at most so many LoRA adapters among them; 0 sets no bound.

    Source: `LoRAConfig.max_loras` of vLLM.
    """
    return max_loras == 0 or num_adapters <= max_loras


@predicate
def has_room_for_output(num_kept: int, num_more: int, room: int) -> bool:
    """Beside so many embeddings of other images there is room for the output of one more; 0 sets no bound.

    Source: `encoder_cache_size` of vLLM's V1 scheduler.
    """
    return room == 0 or num_kept + num_more <= room


@predicate
def may_stop_short(num_tokens: int, max_num_batched_tokens: int, num_chunk: int, long_prefill_threshold: int) -> bool:
    """A chunk of `num_chunk` tokens may end before its prompt does: its step has no token left, or it has all it may.

    num_tokens: all tokens that the step computes.
    """
    return num_tokens >= max_num_batched_tokens or (long_prefill_threshold > 0 and num_chunk >= long_prefill_threshold)


@predicate
def is_within_partial_prefills(num_partial: int, num_long: int, most: int, most_long: int) -> bool:
    """A step leaves at most so many prompts computed in part, and at most so many of those that it computes are long.

    Source: `SchedulerConfig.max_num_partial_prefills` and `max_long_partial_prefills` of vLLM's V0 line.
    """
    return num_partial <= most and num_long <= most_long


@function
def prompt_tokens_in_step(max_num_batched_tokens: int, long_prefill_threshold: int) -> int:
    """The most tokens of one prompt that a step computes."""
    return (
        long_prefill_threshold
        if 0 < long_prefill_threshold and long_prefill_threshold < max_num_batched_tokens
        else max_num_batched_tokens
    )


@function
def num_stored_idly_max(num_blocks: int) -> int:
    """The most blocks of the device that are stored elsewhere while there is no request: each of them twice."""
    return 2 * num_blocks


@function
def num_steps_max(num_gains: int, max_model_len: int, max_num_batched_tokens: int, num_under_way: int) -> int:
    """The most steps that `num_gains` gains take. `num_under_way`: steps under way when one is scheduled."""
    return (num_gains * ((max_model_len + max_num_batched_tokens - 1) // max_num_batched_tokens + 2) + 1) * (
        1 + num_under_way
    ) + num_under_way
