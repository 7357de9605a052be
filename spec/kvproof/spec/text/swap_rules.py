"""The rules of swap: a group of sequences moves to its other pool, entry by entry, and its sharing is kept.

During a swap, the entries of a sequence before the next one to move are in the other pool, and the sequence can do
nothing else.
"""

from kvproof.spec.language import BLOCK_SIZE, NUM_BLOCKS, BlockId, SeqId, check, require, rule, same
from kvproof.spec.text.state import (
    NONE,
    State,
    at_rest,
    free_in,
    has_entry,
    holds,
    num_done,
    num_known,
    num_promised,
    pool_of,
)
from kvproof.spec.text.steps import copy_block, gain, lose


@rule
def begin_swap(state: State, seq: SeqId) -> None:
    """Start to move a whole sequence into its other pool."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    state.moving[seq] = state.first[seq]
    check(state.moving[seq] != NONE, "swap-mapping")


@rule
def move_entry(state: State, seq: SeqId, block: BlockId) -> None:
    """Copy the next entry to a free block. Other holders keep the old block, and the cache keeps its content."""
    require(state.live[seq] and state.moving[seq] != NONE, "the sequence is being swapped")
    require(state.moving[seq] < state.num_blocks[seq], "an entry is left to move")
    require(
        free_in(state, block, 1 - state.home[seq]), "the target of a swap is free, in the other pool", "swap-mapping"
    )
    index = state.moving[seq]
    old = state.table[seq][index]
    require(state.filler[old] == NONE, "the KV to copy has arrived", "in-flight-held")
    copy_block(state, old, block)
    gain(state, seq, index, block)
    lose(state, seq, old)
    state.moving[seq] += 1
    check(state.table[seq][index] == block and state.moving[seq] == index + 1, "swap-mapping")
    check(pool_of(old) != pool_of(block), "swap-mapping")


@rule
def follow_entry(state: State, seq: SeqId, leader: SeqId) -> None:
    """Move the next entry to the block in which another sequence has the same tokens, so that sharing is kept."""
    require(state.live[seq] and state.moving[seq] != NONE, "the sequence is being swapped")
    index = state.moving[seq]
    require(index < state.num_blocks[seq], "an entry is left to move")
    require(
        state.live[leader] and leader != seq and has_entry(state, leader, index),
        "another sequence has the entry",
        "swap-mapping",
    )
    twin = state.table[leader][index]
    old = state.table[seq][index]
    require(pool_of(twin) == 1 - state.home[seq], "it is in the other pool", "swap-mapping")
    require(
        num_known(state, leader, index) == num_known(state, seq, index)
        and same(state.tokens[leader][index], state.tokens[seq][index], num_known(state, seq, index)),
        "both know the same tokens there",
        "sharing-equal",
    )
    require(
        num_promised(state, twin) >= num_done(state, seq, index),
        "what the sequence has computed is written there",
        "swap-mapping",
    )
    require(not holds(state, seq, twin), "no other entry of the sequence names the block", "swap-mapping")
    gain(state, seq, index, twin)
    lose(state, seq, old)
    state.moving[seq] += 1
    check(pool_of(old) != pool_of(twin), "swap-mapping")


@rule
def rehit_entry(state: State, seq: SeqId, twin: BlockId) -> None:
    """Move the next entry to a computed block of equal content in the other pool."""
    require(state.live[seq] and state.moving[seq] != NONE, "the sequence is being swapped")
    index = state.moving[seq]
    require(index < state.num_full[seq], "the next entry is full", "swap-mapping")
    require(
        0 <= twin and twin < NUM_BLOCKS and pool_of(twin) == 1 - state.home[seq],
        "the twin is in the other pool",
        "swap-mapping",
    )
    require(
        state.cached[twin] and same(state.content[twin], state.tokens[seq][index], BLOCK_SIZE),
        "the twin holds the tokens, adapter, images and salt of the sequence",
        "sharing-equal",
    )
    require(
        num_promised(state, twin) >= num_done(state, seq, index),
        "what the sequence has computed is written in the twin",
        "hit-computed",
    )
    require(not holds(state, seq, twin), "no other entry of the sequence names the block", "swap-mapping")
    old = state.table[seq][index]
    gain(state, seq, index, twin)
    lose(state, seq, old)
    state.moving[seq] += 1
    check(pool_of(old) != pool_of(twin), "swap-mapping")


@rule
def end_swap(state: State, seq: SeqId) -> None:
    """End the swap: the whole sequence is in its other pool."""
    require(state.live[seq] and state.moving[seq] == state.num_blocks[seq], "every entry has moved", "swap-mapping")
    state.home[seq] = 1 - state.home[seq]
    state.moving[seq] = NONE
    check(at_rest(state, seq), "swap-mapping")
