"""The invariants: claims that every reachable state satisfies. `flight_invariants` has those about flights."""

from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    INDEXES,
    NULL,
    NUM_BLOCKS,
    NUM_SEQS,
    POOLS,
    RANKS,
    SEQS,
    SLOTS,
    STATUSES,
    implies,
    invariant,
)
from kvproof.spec.text.state import (
    EVICTABLE,
    FREE,
    GPU,
    HOST,
    NONE,
    RESERVED,
    USED,
    State,
    can_still_be_read,
    has_entry,
    holds,
    is_pending,
    num_done,
    num_known,
    num_promised,
    pool_of,
    pool_of_entry,
    pool_size,
    unused_in,
)

# Tables ----------------------------------------------------------------------------------------------------------


@invariant("lists-agree")
def lengths_are_ordered(state: State) -> bool:
    """A table has entries that the window left, full ones, the tail, and reserved ones. It is empty if not live."""
    return all(
        0 <= state.first[s]
        and state.first[s] <= state.num_full[s]
        and state.num_full[s] <= state.num_blocks[s]
        and 0 <= state.num_filled[s]
        and state.num_filled[s] < BLOCK_SIZE
        and implies(state.num_filled[s] > 0, state.num_full[s] < state.num_blocks[s])
        and implies(not state.live[s], state.num_blocks[s] == 0)
        and (state.home[s] == GPU or state.home[s] == HOST)
        for s in SEQS
    )


@invariant("read-back")
def nothing_unknown_is_done(state: State) -> bool:
    """A sequence reads only slots of known tokens, and no slot of an entry that was left."""
    return all(
        state.first[s] <= state.done_full[s]
        and 0 <= state.done_filled[s]
        and state.done_filled[s] < BLOCK_SIZE
        and (
            state.done_full[s] < state.num_full[s]
            or (state.done_full[s] == state.num_full[s] and state.done_filled[s] <= state.num_filled[s])
        )
        for s in SEQS
    )


@invariant("swap-mapping")
def what_is_freed_is_not_swapped(state: State) -> bool:
    """A sequence that is being freed is live, and is not being swapped."""
    return all(implies(state.ending[s], state.live[s] and state.moving[s] == NONE) for s in SEQS)


@invariant("swap-mapping")
def swaps_are_within_the_table(state: State) -> bool:
    """A swap has moved the entries before `moving`, an index within the table."""
    return all(
        state.moving[s] == NONE or (state.first[s] <= state.moving[s] and state.moving[s] <= state.num_blocks[s])
        for s in SEQS
    )


@invariant("no-use-after-free")
def tables_name_blocks(state: State) -> bool:
    """An entry that was left is NULL. Every other entry names a block, and no two entries name the same one."""
    return all(
        implies(i < state.first[s], state.table[s][i] == NULL)
        and implies(
            has_entry(state, s, i),
            0 <= state.table[s][i] and state.table[s][i] < NUM_BLOCKS and state.position[s][state.table[s][i]] == i,
        )
        for s in SEQS
        for i in INDEXES
    )


@invariant("no-use-after-free")
def position_is_the_inverse_table(state: State) -> bool:
    """`position` is the inverse of the table: the entry at the position of a block names the block."""
    return all(
        state.position[s][b] == NONE
        or (state.live[s] and has_entry(state, s, state.position[s][b]) and state.table[s][state.position[s][b]] == b)
        for s in SEQS
        for b in BLOCKS
    )


@invariant("swap-mapping")
def entries_are_in_their_pool(state: State) -> bool:
    """The blocks of a sequence are in its home pool; during a swap, the moved entries are in the other pool."""
    return all(
        implies(has_entry(state, s, i), pool_of(state.table[s][i]) == pool_of_entry(state, s, i))
        for s in SEQS
        for i in INDEXES
    )


@invariant("window-kept")
def the_window_left_only_what_is_not_read(state: State) -> bool:
    """No token that is still to be computed reads an entry that the window left."""
    return all(
        implies(i < state.first[s] and not state.ending[s], not can_still_be_read(state, s, i))
        for s in SEQS
        for i in INDEXES
    )


# References and lists --------------------------------------------------------------------------------------------


@invariant("refcount-exact")
def every_holder_is_counted(state: State) -> bool:
    """Each sequence that holds a block is one of its enumerated holders."""
    return all(
        implies(
            holds(state, s, b),
            0 <= state.rank[b][s] and state.rank[b][s] < state.refcount[b] and state.holder[b][state.rank[b][s]] == s,
        )
        for s in SEQS
        for b in BLOCKS
    )


@invariant("refcount-exact")
def only_holders_are_counted(state: State) -> bool:
    """A block has as many distinct holders as its refcount says."""
    return all(
        implies(
            k < state.refcount[b],
            0 <= state.holder[b][k]
            and state.holder[b][k] < NUM_SEQS
            and holds(state, state.holder[b][k], b)
            and state.rank[b][state.holder[b][k]] == k,
        )
        for b in BLOCKS
        for k in RANKS
    )


@invariant("lists-agree")
def status_tells_who_refers(state: State) -> bool:
    """A block is used if and only if a table or a flight names it; else it is evictable if and only if computed."""
    return all(
        state.refcount[b] >= 0
        and FREE <= state.status[b]
        and state.status[b] <= RESERVED
        and (state.status[b] == USED) == (state.refcount[b] > 0 or is_pending(state, b))
        and (state.status[b] == EVICTABLE)
        == (state.refcount[b] == 0 and not is_pending(state, b) and state.computed[b])
        for b in BLOCKS
    )


@invariant("lists-agree")
def every_block_is_listed(state: State) -> bool:
    """Each block is in the list of its status."""
    return all(
        0 <= state.place[b]
        and state.place[b] < state.count[pool_of(b)][state.status[b]]
        and state.member[pool_of(b)][state.status[b]][state.place[b]] == b
        for b in BLOCKS
    )


@invariant("lists-agree")
def only_such_blocks_are_listed(state: State) -> bool:
    """Each list has as many distinct blocks, of its pool and status, as its counter says."""
    return all(
        implies(
            k < state.count[p][w],
            0 <= state.member[p][w][k]
            and state.member[p][w][k] < NUM_BLOCKS
            and pool_of(state.member[p][w][k]) == p
            and state.status[state.member[p][w][k]] == w
            and state.place[state.member[p][w][k]] == k,
        )
        for p in POOLS
        for w in STATUSES
        for k in RANKS
    )


@invariant("conservation")
def counters_add_up(state: State) -> bool:
    """Free, used, evictable and reserved blocks together are the whole pool."""
    return all(
        state.count[p][FREE] >= 0
        and state.count[p][USED] >= 0
        and state.count[p][EVICTABLE] >= 0
        and state.count[p][RESERVED] >= 0
        and unused_in(state, p) + state.count[p][USED] + state.count[p][RESERVED] == pool_size(p)
        for p in POOLS
    )


# Contents --------------------------------------------------------------------------------------------------------


@invariant("cache-content")
def nothing_is_known_of_a_free_block(state: State) -> bool:
    """A free or reserved block is not cached, and no slot of it counts as written."""
    return all(
        implies(
            state.status[b] == FREE or state.status[b] == RESERVED,
            not state.cached[b] and not state.computed[b] and state.num_written[b] == 0,
        )
        for b in BLOCKS
    )


@invariant("hit-computed")
def computed_blocks_are_cached_and_complete(state: State) -> bool:
    """A block that may be hit is cached, and all of its slots have been written."""
    return all(
        0 <= state.num_written[b]
        and state.num_written[b] <= BLOCK_SIZE
        and implies(state.computed[b], state.cached[b] and state.num_written[b] == BLOCK_SIZE)
        for b in BLOCKS
    )


@invariant("cache-content")
def cached_blocks_hold_their_content(state: State) -> bool:
    """The written slots of a cached block hold the KV of the content that the block is cached under."""
    return all(
        implies(state.cached[b] and o < state.num_written[b], state.memory[b][o] == state.content[b][o])
        for b in BLOCKS
        for o in SLOTS
    )


@invariant("sharing-equal")
def holders_of_a_cached_block_are_full_there(state: State) -> bool:
    """A sequence holds a cached block only as an entry all of whose tokens it knows."""
    return all(
        implies(holds(state, s, b) and state.cached[b], state.position[s][b] < state.num_full[s])
        for s in SEQS
        for b in BLOCKS
    )


@invariant("sharing-equal")
def holders_of_a_cached_block_have_its_content(state: State) -> bool:
    """A sequence that holds a cached block has, in that entry, the tokens that the block is cached under."""
    return all(
        implies(holds(state, s, b) and state.cached[b], state.tokens[s][state.position[s][b]][o] == state.content[b][o])
        for s in SEQS
        for b in BLOCKS
        for o in SLOTS
    )


@invariant("sharing-equal")
def sharers_know_equally_many_tokens(state: State) -> bool:
    """Sequences that share a block know the same number of tokens in it."""
    return all(
        implies(
            holds(state, s, b) and holds(state, r, b),
            num_known(state, s, state.position[s][b]) == num_known(state, r, state.position[r][b]),
        )
        for s in SEQS
        for r in SEQS
        for b in BLOCKS
    )


@invariant("sharing-equal")
def sharers_agree_on_the_tokens(state: State) -> bool:
    """Sequences that share a block know the same tokens in it."""
    return all(
        implies(
            holds(state, s, b) and holds(state, r, b) and o < num_known(state, s, state.position[s][b]),
            state.tokens[s][state.position[s][b]][o] == state.tokens[r][state.position[r][b]][o],
        )
        for s in SEQS
        for r in SEQS
        for b in BLOCKS
        for o in SLOTS
    )


@invariant("sharing-equal")
def what_nobody_knows_is_shared_at_one_place(state: State) -> bool:
    """Sequences that share a block in which they know no token name it at the same index."""
    return all(
        implies(
            holds(state, s, b) and holds(state, r, b) and num_known(state, s, state.position[s][b]) == 0,
            state.position[s][b] == state.position[r][b],
        )
        for s in SEQS
        for r in SEQS
        for b in BLOCKS
    )


@invariant("read-back")
def only_known_tokens_are_written(state: State) -> bool:
    """The written slots of a block are slots of tokens that every holder knows."""
    return all(
        implies(has_entry(state, s, i), state.num_written[state.table[s][i]] <= num_known(state, s, i))
        for s in SEQS
        for i in INDEXES
    )


@invariant("read-back")
def what_is_done_is_written(state: State) -> bool:
    """Every slot that a sequence may read is written, or a transfer under way will write it."""
    return all(
        implies(has_entry(state, s, i), num_done(state, s, i) <= num_promised(state, state.table[s][i]))
        for s in SEQS
        for i in INDEXES
    )


@invariant("read-back")
def sequences_read_back_their_tokens(state: State) -> bool:
    """The written slots in the blocks of a sequence hold the KV of its own tokens."""
    return all(
        implies(
            has_entry(state, s, i) and o < state.num_written[state.table[s][i]],
            state.memory[state.table[s][i]][o] == state.tokens[s][i][o],
        )
        for s in SEQS
        for i in INDEXES
        for o in SLOTS
    )
