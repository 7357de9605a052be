"""The arithmetic of admission: how many blocks a call takes, and what a manager may answer before it.

A manager is asked before it is called: OK promises that the call succeeds, NEVER that no later state of this pool
admits it, LATER neither. A watermark may hold blocks back from admission while anything runs, not from an idle pool.
Costs are in blocks, lengths in tokens.
"""

from kvproof.spec.language import BLOCK_SIZE, POOLS, SEQS, word
from kvproof.spec.text.state import GPU, USED, State


@word
def blocks_for(num_tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return (num_tokens + BLOCK_SIZE - 1) // BLOCK_SIZE


@word
def num_tokens_known(state: State, seq: int) -> int:
    """How many tokens of the sequence have slots."""
    return state.num_full[seq] * BLOCK_SIZE + state.num_filled[seq]


@word
def num_tokens_done(state: State, seq: int) -> int:
    """How many tokens of the sequence have been computed."""
    return state.done_full[seq] * BLOCK_SIZE + state.done_filled[seq]


@word
def tail_is_shared(state: State, seq: int) -> bool:
    """The entry that the next token goes to is there, and another sequence names it."""
    return state.num_full[seq] < state.num_blocks[seq] and state.refcount[state.table[seq][state.num_full[seq]]] > 1


@word
def entries_missing(state: State, seq: int, num_slots: int) -> int:
    """Table entries that the sequence needs for `num_slots` slots beyond its known tokens, and does not have."""
    return (
        blocks_for(num_tokens_known(state, seq) + num_slots) - state.num_blocks[seq]
        if blocks_for(num_tokens_known(state, seq) + num_slots) > state.num_blocks[seq]
        else 0
    )


@word
def may_answer_ok(num_blocks: int, num_unused: int, num_watermark: int) -> bool:
    """Whether so many blocks can be had now, and the watermark is left for what runs."""
    return num_blocks + num_watermark <= num_unused


@word
def blocks_needed(num_tokens: int, num_lookahead: int, num_tables: int) -> int:
    """Blocks that a sequence needs in all its tables if it shares none of them, lookahead slots included."""
    return blocks_for(num_tokens + num_lookahead) * num_tables


@word
def blocks_kept(num_reserved: int, has_null: bool) -> int:
    """Blocks that no sequence can get: the reserved ones, and the null block, even before the manager reserves it.

    A manager may reserve its null block only when the window of a running sequence first leaves an entry.
    """
    return 1 if has_null and num_reserved == 0 else num_reserved


@word
def may_end_for_good(num_blocks: int, num_kept: int, num_watermark: int, pool_blocks: int) -> bool:
    """A group may be refused or ended for good only if the pool, all free, does not have the blocks that it needs."""
    return num_blocks > pool_blocks - num_kept - num_watermark


@word
def something_runs(state: State) -> bool:
    """A sequence has its blocks on the GPU, so that some may become free there."""
    return any(state.live[s] and state.home[s] == GPU for s in SEQS)


@word
def may_wait(state: State) -> bool:
    """LATER may be answered only while something runs: in an idle pool, who waits would wait for ever."""
    return something_runs(state)


@word
def may_reset(state: State) -> bool:
    """The prefix cache is reset when no block of either pool is in use, and only then: else the reset is refused."""
    return all(state.count[p][USED] == 0 for p in POOLS)


@word
def entries_in_window(num_done: int, num_slots: int, window: int) -> int:
    """Table entries that a window of `window` tokens may hold: what can be read, with two blocks to spare."""
    return (
        blocks_for(num_slots)
        if num_done // BLOCK_SIZE <= window // BLOCK_SIZE + 2
        else blocks_for(num_slots) - (num_done // BLOCK_SIZE - (window // BLOCK_SIZE + 2))
    )
