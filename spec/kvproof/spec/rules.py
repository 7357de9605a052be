"""The rules: the smallest steps of the specification, one block or one table entry at a time.

Guards first, with the property that an implementation breaks which acts although the guard does not hold; then
writes, with obligations in between. What an implementation may choose (which free block, which victim, which cached
twin) is a parameter. A rule that is not enabled changes nothing.
"""

from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    INDEXES,
    NULL,
    NUM_BLOCKS,
    BlockId,
    Count,
    Index,
    Row,
    SeqId,
    check,
    copied,
    put,
    require,
    rule,
    same,
    spliced,
    step,
)
from kvproof.spec.state import (
    EVICTABLE,
    FREE,
    GPU,
    NONE,
    RESERVED,
    USED,
    State,
    at_rest,
    can_still_be_read,
    free_in,
    has_entry,
    holds,
    num_done,
    num_known,
    pool_of,
    unused_in,
)

# Steps that rules share -------------------------------------------------------------------------------------------


@step
def move_to(state: State, block: int, status: int) -> None:
    """Take `block` out of its list and put it at the end of another."""
    pool = pool_of(block)
    old = state.status[block]
    state.count[pool][old] -= 1
    last = state.member[pool][old][state.count[pool][old]]
    state.member[pool][old][state.place[block]] = last
    state.place[last] = state.place[block]
    state.member[pool][status][state.count[pool][status]] = block
    state.place[block] = state.count[pool][status]
    state.count[pool][status] += 1
    state.status[block] = status


@step
def forget(state: State, block: int) -> None:
    """Nothing is known of the block any more."""
    state.cached[block] = False
    state.computed[block] = False
    state.num_written[block] = 0
    move_to(state, block, FREE)


@step
def gain(state: State, seq: int, index: int, block: int) -> None:
    """Let the table entry name `block`."""
    if state.status[block] != USED:
        move_to(state, block, USED)
    state.table[seq][index] = block
    state.position[seq][block] = index
    state.holder[block][state.refcount[block]] = seq
    state.rank[block][seq] = state.refcount[block]
    state.refcount[block] += 1


@step
def lose(state: State, seq: int, block: int) -> None:
    """Drop the reference that `seq` has to `block`; the last one gives it back, its computed content to be hit."""
    check(state.refcount[block] > 0, "no-double-free")
    check(state.status[block] == USED, "no-use-after-free")
    state.position[seq][block] = NONE
    state.refcount[block] -= 1
    last = state.holder[block][state.refcount[block]]
    state.holder[block][state.rank[block][seq]] = last
    state.rank[block][last] = state.rank[block][seq]
    if state.refcount[block] == 0:
        if state.computed[block]:
            move_to(state, block, EVICTABLE)
        else:
            forget(state, block)


@step
def copy_block(state: State, source: int, target: int) -> None:
    """Copy the KV that is there; the copy is not cached."""
    check(state.refcount[target] == 0, "exclusive-writer")
    state.memory[target] = copied(state.memory[source])
    state.num_written[target] = state.num_written[source]


@step
def know(state: State, seq: int, index: int, row: list[int], stop: int) -> None:
    """Make the tokens of that entry known up to `stop`."""
    state.tokens[seq][index] = spliced(state.tokens[seq][index], state.num_filled[seq], stop, row)
    if stop == BLOCK_SIZE:
        state.num_full[seq] = index + 1
        state.num_filled[seq] = 0
    else:
        state.num_filled[seq] = stop


@step
def may_read(state: State, seq: int, index: int, stop: int) -> None:
    """The sequence may read that entry up to slot `stop`."""
    if stop == BLOCK_SIZE:
        state.done_full[seq] = index + 1
        state.done_filled[seq] = 0
    else:
        state.done_filled[seq] = stop


# The life of a sequence -------------------------------------------------------------------------------------------


@rule
def admit(state: State, seq: SeqId, window: Count) -> None:
    """Create an empty sequence on the GPU."""
    require(not state.live[seq], "the sequence does not exist")
    require(window >= 0, "the window is not negative")
    state.live[seq] = True
    state.home[seq] = GPU
    state.moving[seq] = NONE
    state.window[seq] = window
    check(at_rest(state, seq) and state.home[seq] == GPU and state.window[seq] == window, "frame-kept")


@rule
def reserve(state: State, seq: SeqId, block: BlockId) -> None:
    """Add a lookahead block; what its slots hold is undefined."""
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
    """Make tokens known up to slot `stop` of one entry: in `block` where it stands, new, or as a copy."""
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
    else:
        require(state.refcount[block] == 1, "a shared block is replaced before it is written", "cow-copied")
    was_shared = not is_new and state.refcount[old] > 1
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
    check(unused_in(state, pool) == unused_before - (1 if is_new or was_shared else 0), "admission-sound")


@rule
def compute(state: State, seq: SeqId, stop: Count) -> None:
    """A step computes the KV of the next known tokens, up to slot `stop` of their entry."""
    index = state.done_full[seq]
    slot = state.done_filled[seq]
    require(state.live[seq] and has_entry(state, seq, index), "the tokens to compute have slots", "read-back")
    require(slot < stop and stop <= num_known(state, seq, index), "the tokens to compute are known")
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
    """The sequence may read what another has written of a block that both hold."""
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
    """Drop the last table entry: a step of free, or a reserved block given back."""
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
    is_last_reference = state.refcount[block] == 1
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


@rule
def slide(state: State, seq: SeqId) -> None:
    """The sliding window leaves the first entry; NULL takes its place."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    require(state.first[seq] < state.num_full[seq], "the first entry is full", "window-kept")
    require(not can_still_be_read(state, seq, state.first[seq]), "no later token reads the entry left", "window-kept")
    index = state.first[seq]
    block = state.table[seq][index]
    state.table[seq][index] = NULL
    state.first[seq] += 1
    lose(state, seq, block)
    check(state.first[seq] == index + 1 and not holds(state, seq, block), "window-kept")


# The prefix cache -------------------------------------------------------------------------------------------------


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
    """After the step: the KV of a cached block is complete."""
    require(state.cached[block], "the block is cached")
    require(state.num_written[block] == BLOCK_SIZE, "every slot has been written", "hit-computed")
    state.computed[block] = True
    check(state.computed[block] and same(state.memory[block], state.content[block], BLOCK_SIZE), "cache-content")


@rule
def hit(state: State, seq: SeqId, block: BlockId, row: Row) -> None:
    """Begin the next entry with a computed block, used or evictable, of equal content: it is not computed again."""
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
    require(
        state.cached[block] and same(state.content[block], row, BLOCK_SIZE),
        "the block hit holds the tokens, adapter, images and salt of the sequence",
        "sharing-equal",
    )
    require(state.computed[block], "the block hit was computed", "hit-computed")
    gain(state, seq, index, block)
    state.num_blocks[seq] += 1
    know(state, seq, index, row, BLOCK_SIZE)
    state.done_full[seq] = index + 1
    check(state.table[seq][index] == block, "sharing-equal")
    check(num_done(state, seq, index) == BLOCK_SIZE and same(state.memory[block], row, BLOCK_SIZE), "read-back")


@rule
def share(state: State, seq: SeqId, block: BlockId, row: Row) -> None:
    """Begin the next entry with a cached block of equal content, which the sequence computes again all the same."""
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
    gain(state, seq, index, block)
    state.num_blocks[seq] += 1
    know(state, seq, index, row, BLOCK_SIZE)
    check(state.table[seq][index] == block, "sharing-equal")


@rule
def exchange(state: State, seq: SeqId, index: Index, twin: BlockId, row: Row) -> None:
    """Name a cached block of equal content instead of one's own, which `row` completes; what it lacks is not done."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    require(
        has_entry(state, seq, index) and index <= state.num_full[seq],
        "the entry exchanged is full, or the next tokens fill it",
        "cow-copied",
    )
    require(same(state.tokens[seq][index], row, num_known(state, seq, index)), "the row begins with what is known")
    block = state.table[seq][index]
    require(twin != block, "the twin is another block")
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
    check(state.refcount[block] == 0, "evict-unreferenced")
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


# Swap -------------------------------------------------------------------------------------------------------------


@rule
def begin_swap(state: State, seq: SeqId) -> None:
    """Start to move a whole sequence into its other pool."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    state.moving[seq] = state.first[seq]
    check(state.moving[seq] != NONE, "swap-mapping")


@rule
def move_entry(state: State, seq: SeqId, block: BlockId) -> None:
    """Move the next entry to a free block; other holders keep the old one, and the cache keeps its content."""
    require(state.live[seq] and state.moving[seq] != NONE, "the sequence is being swapped")
    require(state.moving[seq] < state.num_blocks[seq], "an entry is left to move")
    require(
        free_in(state, block, 1 - state.home[seq]), "the target of a swap is free, in the other pool", "swap-mapping"
    )
    index = state.moving[seq]
    old = state.table[seq][index]
    copy_block(state, old, block)
    gain(state, seq, index, block)
    lose(state, seq, old)
    state.moving[seq] += 1
    check(state.table[seq][index] == block and state.moving[seq] == index + 1, "swap-mapping")
    check(pool_of(old) != pool_of(block), "swap-mapping")


@rule
def follow_entry(state: State, seq: SeqId, leader: SeqId) -> None:
    """Move the next entry to where another sequence of the group has the same tokens already: sharing is kept."""
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
        state.num_written[twin] >= num_done(state, seq, index),
        "what the sequence has computed is written there",
        "swap-mapping",
    )
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
        state.num_written[twin] >= num_done(state, seq, index),
        "what the sequence has computed is written in the twin",
        "hit-computed",
    )
    old = state.table[seq][index]
    gain(state, seq, index, twin)
    lose(state, seq, old)
    state.moving[seq] += 1
    check(pool_of(old) != pool_of(twin), "swap-mapping")


@rule
def end_swap(state: State, seq: SeqId) -> None:
    """The whole sequence is in its other pool."""
    require(state.live[seq] and state.moving[seq] == state.num_blocks[seq], "every entry has moved", "swap-mapping")
    state.home[seq] = 1 - state.home[seq]
    state.moving[seq] = NONE
    check(at_rest(state, seq), "swap-mapping")
