"""The budgets of a scheduler's step, and the limits of a request. Lengths are in tokens."""

from kvproof.spec.language import predicate


@predicate
def is_within_budget(num_tokens: int, num_seqs: int, max_num_batched_tokens: int, max_num_seqs: int) -> bool:
    """A step computes at most so many tokens, for at most so many sequences."""
    return num_tokens <= max_num_batched_tokens and num_seqs <= max_num_seqs


@predicate
def have_places(num_running: int, max_num_seqs: int) -> bool:
    """When a sequence is admitted or swapped in, at most so many run afterwards."""
    return num_running <= max_num_seqs


@predicate
def exceeds_limits(
    num_tokens: int, num_members: int, max_model_len: int, max_num_batched_tokens: int, max_num_seqs: int
) -> bool:
    """No step can run the request: it is too long, or has more members than a step has sequences.

    A request of several members has a prompt in common, which is computed whole, in one step.
    """
    return (
        num_tokens > max_model_len
        or num_members > max_num_seqs
        or (num_members > 1 and num_tokens > max_num_batched_tokens)
    )
