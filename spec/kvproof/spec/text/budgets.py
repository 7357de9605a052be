"""The budgets of a scheduler's step, the limits of a request, and how long requests may take. Lengths are in tokens.

A step *gains* if it samples a token or ends a request. Between two gains a scheduler may need steps without one:

- at most `ceil(L / B)` that compute chunks of a prompt, where L is the greatest length of a sequence in tokens and B is
  the token budget. A prompt that is begun and dropped again was dropped for another one that gained, or for itself;
- one that only preempts, because the group that should continue cannot, not even alone;
- one that only swaps out.

So G gains take at most `G * (ceil(L / B) + 2)` steps, and one more step finds that all is done. The bound assumes that
a preempted request does not come back before another one gained. That holds if requests are served in the order of
arrival. A scheduler with another order that exceeds the bound lets a request wait without a reason known here.

If steps may be under way when the next one is scheduled, a step may be empty because every request waits for them: at
most one for each such step after each step that is not empty.
"""

from kvproof.spec.language import function, predicate


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
def may_recompute(num_members: int) -> bool:
    """Only a request with one member may be preempted by recomputation: several have no prompt in common."""
    return num_members == 1


@predicate
def is_served_in_order(num_overtaken: int, num_overtaken_max: int) -> bool:
    """While a request waits or is swapped, only a bounded number of later ones is let in; with 0, none is."""
    return num_overtaken <= num_overtaken_max


@function
def num_steps_max(num_gains: int, max_model_len: int, max_num_batched_tokens: int, num_under_way: int) -> int:
    """The most steps that `num_gains` gains take. `num_under_way`: steps under way when one is scheduled."""
    return (num_gains * ((max_model_len + max_num_batched_tokens - 1) // max_num_batched_tokens + 2) + 1) * (
        1 + num_under_way
    ) + num_under_way
