"""The rules: the smallest steps of the specification, one block or one table entry at a time.

Guards come first. Each names the property that an implementation breaks if it acts although the guard does not hold.
Then come the writes, with obligations in between. An implementation's choices (which free block, which victim, which
cached twin) are parameters. A rule that is not enabled changes nothing.

This file has the life of a sequence. `window_rules` has the sliding window, `cache_rules` the prefix cache,
`swap_rules` the way to the other pool and back, and `flight_rules` pending accesses of blocks.
"""

from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    INDEXES,
    BlockId,
    Count,
    Row,
    SeqId,
    Window,
    check,
    copied,
    put,
    require,
    rule,
    same,
    spliced,
)
from kvproof.spec.text.state import (
    GPU,
    NONE,
    USED,
    State,
    at_rest,
    free_in,
    has_arrived,
    has_entry,
    holds,
    is_pending,
    num_done,
    num_known,
    pool_of,
    unused_in,
)
from kvproof.spec.text.steps import copy_block, gain, know, lose, may_read


@rule
def admit(state: State, seq: SeqId, window: Window) -> None:
    """Create an empty sequence on the GPU."""
    require(not state.live[seq], "the sequence does not exist")
    state.live[seq] = True
    state.home[seq] = GPU
    state.moving[seq] = NONE
    state.window[seq] = window
    check(at_rest(state, seq) and state.home[seq] == GPU and state.window[seq] == window, "frame-kept")


@rule
def reserve(state: State, seq: SeqId, block: BlockId) -> None:
    """Add a lookahead block; the content of its slots is undefined."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    require(
        free_in(state, block, state.home[seq]),
        "the block taken is free, in the pool of the sequence",
        "no-use-after-free",
    )
    gain(state, seq, state.num_blocks[seq], block)
    state.num_blocks[seq] += 1
    check(state.table[seq][state.num_blocks[seq] - 1] == block and state.refcount[block] == 1, "refcount-exact")


@rule
def append(state: State, seq: SeqId, block: BlockId, row: Row, stop: Count) -> None:
    """Make tokens known up to slot `stop` of an entry. `block` is its block, a new block, or a copy of a shared one."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    require(state.num_filled[seq] < stop and stop <= BLOCK_SIZE, "the tokens fit into the entry")
    index = state.num_full[seq]
    pool = state.home[seq]
    unused_before = unused_in(state, pool)
    is_new = index == state.num_blocks[seq]
    is_copy = not is_new and block != state.table[seq][index]
    old = block if is_new else state.table[seq][index]
    if is_new:
        require(
            free_in(state, block, pool), "the block taken is free, in the pool of the sequence", "no-use-after-free"
        )
    elif is_copy:
        require(
            free_in(state, block, pool), "the block copied to is free, in the pool of the sequence", "no-use-after-free"
        )
        require(state.filler[old] == NONE, "the KV to copy has arrived", "in-flight-held")
    else:
        require(state.refcount[block] == 1, "a shared block is replaced before it is written", "cow-copied")
    stays = is_copy and (state.refcount[old] > 1 or is_pending(state, old))
    if is_new:
        gain(state, seq, index, block)
        state.num_blocks[seq] += 1
    elif is_copy:
        copy_block(state, old, block)
        gain(state, seq, index, block)
        lose(state, seq, old)
        check(same(state.memory[block], state.memory[old], BLOCK_SIZE), "cow-copied")
    check(state.refcount[block] == 1 and state.status[block] == USED, "exclusive-writer")
    check(not state.cached[block] and state.num_written[block] <= state.num_filled[seq], "cache-content")
    know(state, seq, index, row, stop)
    check(state.table[seq][index] == block and num_known(state, seq, index) == stop, "read-back")
    check(unused_in(state, pool) == unused_before - (1 if is_new or stays else 0), "admission-sound")


@rule
def compute(state: State, seq: SeqId, stop: Count) -> None:
    """A step computes the KV of the next known tokens, up to slot `stop` of their entry."""
    index = state.done_full[seq]
    slot = state.done_filled[seq]
    require(state.live[seq] and has_entry(state, seq, index), "the tokens to compute have slots", "read-back")
    require(slot < stop and stop <= num_known(state, seq, index), "the tokens to compute are known")
    require(has_arrived(state, seq), "the KV that the step reads has arrived", "in-flight-held")
    block = state.table[seq][index]
    check(state.status[block] == USED, "no-use-after-free")
    check(
        not state.computed[block] or same(state.tokens[seq][index], state.content[block], BLOCK_SIZE), "cache-content"
    )
    state.memory[block] = spliced(state.memory[block], slot, stop, state.tokens[seq][index])
    if state.num_written[block] < stop:
        state.num_written[block] = stop
    may_read(state, seq, index, stop)
    check(state.num_written[block] >= stop and num_done(state, seq, index) == stop, "read-back")


@rule
def catch_up(state: State, seq: SeqId, stop: Count) -> None:
    """Let the sequence read what another sequence has written in a block that both hold."""
    index = state.done_full[seq]
    require(state.live[seq] and has_entry(state, seq, index), "the tokens to read have slots", "read-back")
    require(state.done_filled[seq] < stop and stop <= num_known(state, seq, index), "the tokens to read are known")
    require(state.num_written[state.table[seq][index]] >= stop, "what the sequence reads was computed", "hit-computed")
    may_read(state, seq, index, stop)
    check(num_done(state, seq, index) == stop, "read-back")


@rule
def fork(state: State, parent: SeqId, child: SeqId) -> None:
    """Let `child` share every block of `parent`; nothing is copied yet."""
    require(at_rest(state, parent), "the parent is live and not being swapped")
    require(not state.live[child], "the child does not exist")
    state.live[child] = True
    state.ending[child] = False
    state.home[child] = state.home[parent]
    state.moving[child] = NONE
    state.window[child] = state.window[parent]
    state.num_blocks[child] = state.num_blocks[parent]
    state.first[child] = state.first[parent]
    state.num_full[child] = state.num_full[parent]
    state.num_filled[child] = state.num_filled[parent]
    state.done_full[child] = state.done_full[parent]
    state.done_filled[child] = state.done_filled[parent]
    state.table[child] = copied(state.table[parent])
    state.tokens[child] = copied(state.tokens[parent])
    state.position[child] = copied(state.position[parent])
    state.holder = [
        put(state.holder[b], state.refcount[b], child) if holds(state, parent, b) else state.holder[b] for b in BLOCKS
    ]
    state.rank = [
        put(state.rank[b], child, state.refcount[b]) if holds(state, parent, b) else state.rank[b] for b in BLOCKS
    ]
    state.refcount = [state.refcount[b] + 1 if holds(state, parent, b) else state.refcount[b] for b in BLOCKS]
    check(at_rest(state, child) and state.home[child] == state.home[parent], "frame-kept")
    check(state.window[child] == state.window[parent], "frame-kept")
    check(all(state.table[child][i] == state.table[parent][i] for i in INDEXES), "frame-kept")
    check(all(num_done(state, child, i) == num_done(state, parent, i) for i in INDEXES), "read-back")


@rule
def begin_free(state: State, seq: SeqId) -> None:
    """Start to drop every entry of a sequence."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    state.ending[seq] = True
    check(state.live[seq] and not at_rest(state, seq), "frame-kept")


@rule
def drop_last(state: State, seq: SeqId) -> None:
    """Drop the last table entry: part of a free, or a reserved block that is given back."""
    require(state.live[seq] and state.moving[seq] == NONE, "the sequence is live and not being swapped")
    require(
        state.ending[seq] or num_known(state, seq, state.num_blocks[seq] - 1) == 0,
        "the sequence is being freed, or knows no token there",
        "read-back",
    )
    require(has_entry(state, seq, state.num_blocks[seq] - 1), "an entry is left", "no-double-free")
    index = state.num_blocks[seq] - 1
    block = state.table[seq][index]
    pool = pool_of(block)
    unused_before = unused_in(state, pool)
    is_last_reference = state.refcount[block] == 1 and not is_pending(state, block)
    state.num_blocks[seq] = index
    if index <= state.num_full[seq]:
        state.num_full[seq] = index
        state.num_filled[seq] = 0
    if index <= state.done_full[seq]:
        state.done_full[seq] = index
        state.done_filled[seq] = 0
    lose(state, seq, block)
    check(unused_in(state, pool) == unused_before + (1 if is_last_reference else 0), "conservation")
    check((state.status[block] != USED) == is_last_reference, "refcount-exact")


@rule
def finish(state: State, seq: SeqId) -> None:
    """End a sequence that has no entry left."""
    require(state.live[seq] and state.ending[seq], "the sequence is being freed")
    require(state.num_blocks[seq] == state.first[seq], "no entry is left", "no-leak-at-rest")
    state.live[seq] = False
    state.ending[seq] = False
    state.num_blocks[seq] = 0
    state.first[seq] = 0
    state.num_full[seq] = 0
    state.num_filled[seq] = 0
    state.done_full[seq] = 0
    state.done_filled[seq] = 0
    check(not state.live[seq] and all(not holds(state, seq, b) for b in BLOCKS), "no-leak-at-rest")
