"""The budgets of a scheduler's step, and the limits of a request. Lengths are in tokens."""

from kvproof.spec.language import predicate


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
