"""Loads of KV from elsewhere that fail: what is there afterwards, what was computed in vain, and who ends.

A load writes the positions of a sequence behind those that are cached. It may fail for some of its blocks. Attention
reads every position before the one that is computed, so what lies behind the first block that failed is of no use: the
sequence goes on from there, or from an earlier position, and computes again what is missing. `compute` and `catch_up`
refuse anything else, and `mark_computed` a block that was not written.

A load within a step may fail when the scheduler has let others read its blocks, or has scheduled the next step. Then
what these compute is computed in vain: its KV does not count, and the token that is sampled from it is given to nobody.

Lengths are in tokens.
"""

from kvproof.spec.language import function, predicate

RECOMPUTE, FAIL = LOAD_FAILURE_POLICIES = "recompute", "fail"  # what becomes of a request whose load fails


@function
def num_there(num_cached: int, stop: int, num_whole: int, block_size: int) -> int:
    """So many tokens have KV after a load of the positions `num_cached` to `stop - 1`.

    num_whole: the blocks that were loaded before the first one that failed.
    """
    return num_cached + num_whole * block_size if num_cached + num_whole * block_size < stop else stop


@predicate
def is_in_vain(start: int, first_missing: int) -> bool:
    """A chunk that begins at `start` reads what lies before: in vain, if KV is missing from `first_missing` on."""
    return first_missing < start


@predicate
def must_end(fails_requests: bool, was_loading: bool) -> bool:
    """A failed load ends its request if that is the policy. Requests that read of it may end, or compute it again.

    Source: `kv_load_failure_policy` of vLLM, "recompute" and "fail".
    """
    return fails_requests and was_loading
