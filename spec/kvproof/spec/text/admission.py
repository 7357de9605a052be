"""The arithmetic of admission: how many blocks a call takes, and what a manager may answer before the call.

A scheduler asks the manager before it calls it. OK promises that the call succeeds. NEVER promises that no later state
of this pool admits the call. LATER promises neither. While anything runs, a watermark may hold blocks back from
admission; an idle pool admits up to its last block. Costs are in blocks, lengths in tokens.

Source: `AllocStatus` and `BlockSpaceManager` of vLLM's V0 line.
"""

from kvproof.spec.language import BLOCK_SIZE, POOLS, SEQS, function, predicate
from kvproof.spec.text.state import GPU, USED, State, first_read


@function
def blocks_for(num_tokens: int) -> int:
    """The number of blocks that hold `num_tokens` tokens."""
    return (num_tokens + BLOCK_SIZE - 1) // BLOCK_SIZE


@function
def num_tokens_known(state: State, seq: int) -> int:
    """The number of known tokens of the sequence; each has a slot."""
    return state.num_full[seq] * BLOCK_SIZE + state.num_filled[seq]


@function
def num_tokens_done(state: State, seq: int) -> int:
    """The number of tokens whose KV the sequence may read."""
    return state.done_full[seq] * BLOCK_SIZE + state.done_filled[seq]


@predicate
def tail_is_shared(state: State, seq: int) -> bool:
    """The next token goes to an entry that exists, and another sequence names its block."""
    return state.num_full[seq] < state.num_blocks[seq] and state.refcount[state.table[seq][state.num_full[seq]]] > 1


@function
def entries_missing(state: State, seq: int, num_slots: int) -> int:
    """The missing table entries for `num_slots` slots beyond the known tokens of the sequence."""
    return (
        blocks_for(num_tokens_known(state, seq) + num_slots) - state.num_blocks[seq]
        if blocks_for(num_tokens_known(state, seq) + num_slots) > state.num_blocks[seq]
        else 0
    )


@predicate
def may_answer_ok(num_blocks: int, num_unused: int, num_watermark: int) -> bool:
    """The pool has `num_blocks` unused blocks now, and the watermark is left for running sequences."""
    return num_blocks + num_watermark <= num_unused


@function
def blocks_needed(num_tokens: int, num_lookahead: int, num_tables: int) -> int:
    """Blocks that a sequence needs in all its tables if it shares none of them, lookahead slots included."""
    return blocks_for(num_tokens + num_lookahead) * num_tables


@function
def blocks_of_ring(window: int) -> int:
    """Blocks of the smallest ring that holds the last `window` tokens; a ring takes its blocks again for new tokens."""
    return blocks_for(window - 1) + 1


@function
def blocks_kept(num_reserved: int, has_null: bool) -> int:
    """Blocks that no sequence can get for itself: the reserved ones (those of named prefixes count as such), and the
    null block, even before the manager reserves it.

    A manager may reserve its null block only when the window of a running sequence first leaves an entry.
    """
    return 1 if has_null and num_reserved == 0 else num_reserved


@predicate
def may_end_for_good(num_blocks: int, num_kept: int, num_watermark: int, pool_blocks: int) -> bool:
    """A group may be refused or ended for good only if the pool, all free, does not have the blocks that it needs."""
    return num_blocks > pool_blocks - num_kept - num_watermark


@predicate
def something_runs(state: State, num_prefixes: int) -> bool:
    """A sequence has its blocks on the GPU, so that some may become free there.

    The first `num_prefixes` sequences do not count: they are prefixes that requests have named, and never end.
    """
    return any(num_prefixes <= s and state.live[s] and state.home[s] == GPU for s in SEQS)


@predicate
def may_wait(state: State, num_prefixes: int) -> bool:
    """LATER may be answered only while something runs: in an idle pool, who waits would wait for ever."""
    return something_runs(state, num_prefixes)


@predicate
def may_reset(state: State) -> bool:
    """The prefix cache is reset when no block of either pool is in use, and only then: else the reset is refused."""
    return all(state.count[p][USED] == 0 for p in POOLS)


@predicate
def may_hit(num_hit: int, num_tokens: int) -> bool:
    """A prompt of `num_tokens` tokens hits a prefix of itself, in whole blocks."""
    return 0 <= num_hit and num_hit <= num_tokens and num_hit % BLOCK_SIZE == 0


@predicate
def leaves_last_found(num_hit: int, num_found: int) -> bool:
    """With a draft model, the last block of the `num_found` tokens that the cache has is computed again.

    A draft model computes its KV at a position from the model's output there and the next token. The next token of the
    last slot of a block is in the next block; only if that one is found too, the draft's KV is known to be right.

    Source: `use_eagle` of vLLM's V1 manager.
    """
    return num_hit == 0 or num_hit + BLOCK_SIZE <= num_found


@predicate
def have_slots(num_blocks: int, num_tokens: int, num_lookahead: int) -> bool:
    """A table of `num_blocks` entries has a slot for each of the tokens, and the lookahead slots after them."""
    return num_tokens + num_lookahead <= num_blocks * BLOCK_SIZE


@function
def entries_passed(num_before: int) -> int:
    """Table entries to give up, if `num_before` entries are before those in reach: all but two."""
    return num_before - 2 if num_before > 2 else 0


@function
def entries_in_window(num_done: int, num_slots: int, window: int) -> int:
    """Table entries that a sequence with this window may hold: those in reach, and two more."""
    return blocks_for(num_slots) - (
        entries_passed(first_read(num_done, window) // BLOCK_SIZE)
        if window < 0
        else entries_passed(num_done // BLOCK_SIZE - window // BLOCK_SIZE)
    )
