"""The rules of the prefix cache: blocks are cached under their content, hit, shared, exchanged and evicted."""

from kvproof.spec.language import BLOCK_SIZE, NUM_BLOCKS, BlockId, Index, Row, SeqId, check, copied, require, rule, same
from kvproof.spec.text.state import (
    EVICTABLE,
    FREE,
    RESERVED,
    State,
    at_rest,
    has_entry,
    holds,
    is_pending,
    num_done,
    num_known,
    pool_of,
)
from kvproof.spec.text.steps import forget, gain, know, lose, move_to


@rule
def promote(state: State, seq: SeqId, index: Index) -> None:
    """Cache a full block under its content; it cannot be hit before it is computed."""
    require(
        state.live[seq] and has_entry(state, seq, index) and index < state.num_full[seq],
        "the entry is full",
        "cache-content",
    )
    block = state.table[seq][index]
    require(not state.cached[block], "the block is not cached yet")
    state.content[block] = copied(state.tokens[seq][index])
    state.cached[block] = True
    check(state.cached[block] and same(state.content[block], state.tokens[seq][index], BLOCK_SIZE), "cache-content")


@rule
def mark_computed(state: State, block: BlockId) -> None:
    """After a step, the KV of a cached block is complete, and the block can be hit."""
    require(state.cached[block], "the block is cached")
    require(state.num_written[block] == BLOCK_SIZE, "every slot has been written", "hit-computed")
    state.computed[block] = True
    check(state.computed[block] and same(state.memory[block], state.content[block], BLOCK_SIZE), "cache-content")


@rule
def hit(state: State, seq: SeqId, block: BlockId, row: Row) -> None:
    """Add an entry with a computed block of equal content, used or evictable. Its KV is not computed again."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    index = state.num_blocks[seq]
    require(
        state.num_full[seq] == index and state.done_full[seq] == index,
        "every entry before is full and done",
        "hit-computed",
    )
    require(
        0 <= block and block < NUM_BLOCKS and pool_of(block) == state.home[seq],
        "the block hit is in the pool of the sequence",
        "no-use-after-free",
    )
    require(state.computed[block], "the block hit was computed", "hit-computed")
    require(
        state.cached[block] and same(state.content[block], row, BLOCK_SIZE),
        "the block hit holds the tokens, adapter, images and salt of the sequence",
        "sharing-equal",
    )
    require(not holds(state, seq, block), "no other entry of the sequence names the block", "no-use-after-free")
    gain(state, seq, index, block)
    state.num_blocks[seq] += 1
    know(state, seq, index, row, BLOCK_SIZE)
    state.done_full[seq] = index + 1
    check(state.table[seq][index] == block, "sharing-equal")
    check(num_done(state, seq, index) == BLOCK_SIZE and same(state.memory[block], row, BLOCK_SIZE), "read-back")


@rule
def share(state: State, seq: SeqId, block: BlockId, row: Row) -> None:
    """Add an entry with a cached block of equal content, whose KV the sequence computes again."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    index = state.num_blocks[seq]
    require(state.num_full[seq] == index, "every entry before is full", "sharing-equal")
    require(
        0 <= block and block < NUM_BLOCKS and pool_of(block) == state.home[seq],
        "the block shared is in the pool of the sequence",
        "no-use-after-free",
    )
    require(
        state.cached[block] and same(state.content[block], row, BLOCK_SIZE),
        "the block shared holds the tokens, adapter, images and salt of the sequence",
        "sharing-equal",
    )
    require(not holds(state, seq, block), "no other entry of the sequence names the block", "no-use-after-free")
    gain(state, seq, index, block)
    state.num_blocks[seq] += 1
    know(state, seq, index, row, BLOCK_SIZE)
    check(state.table[seq][index] == block, "sharing-equal")


@rule
def exchange(state: State, seq: SeqId, index: Index, twin: BlockId, row: Row) -> None:
    """Replace the block of an entry by a cached block of equal content; `row` is that content.

    Slots that are not written in the cached block are no longer done.
    """
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    require(
        has_entry(state, seq, index) and index <= state.num_full[seq],
        "the entry exchanged is full, or the next tokens fill it",
        "cow-copied",
    )
    require(same(state.tokens[seq][index], row, num_known(state, seq, index)), "the row begins with what is known")
    block = state.table[seq][index]
    require(
        0 <= twin and twin < NUM_BLOCKS and pool_of(twin) == state.home[seq],
        "the twin is in the pool of the sequence",
        "no-use-after-free",
    )
    require(
        state.cached[twin] and same(state.content[twin], row, BLOCK_SIZE),
        "the twin holds the tokens, adapter, images and salt of the sequence",
        "sharing-equal",
    )
    require(not holds(state, seq, twin), "the sequence does not name the twin yet", "no-use-after-free")
    is_behind = state.num_written[twin] < num_done(state, seq, index)
    require(
        not is_behind or state.window[seq] == 0, "what the sequence has computed is written in the twin", "hit-computed"
    )
    gain(state, seq, index, twin)
    lose(state, seq, block)
    if is_behind:
        state.done_full[seq] = index
        state.done_filled[seq] = state.num_written[twin]
    if index == state.num_full[seq]:
        know(state, seq, index, row, BLOCK_SIZE)
    check(state.table[seq][index] == twin and not holds(state, seq, block), "sharing-equal")


@rule
def evict(state: State, block: BlockId) -> None:
    """Forget the content of an evictable block."""
    require(state.status[block] == EVICTABLE, "the block evicted is evictable", "evict-unreferenced")
    check(state.refcount[block] == 0 and not is_pending(state, block), "evict-unreferenced")
    forget(state, block)
    check(state.status[block] == FREE, "lists-agree")


@rule
def set_aside(state: State, block: BlockId) -> None:
    """The manager keeps a free block for itself."""
    require(
        0 <= block and block < NUM_BLOCKS and state.status[block] == FREE,
        "the block set aside is free",
        "no-use-after-free",
    )
    move_to(state, block, RESERVED)
    check(state.status[block] == RESERVED and state.refcount[block] == 0, "lists-agree")
