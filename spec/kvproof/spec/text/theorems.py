"""The theorems: claims that follow from the invariants."""

from kvproof.spec.language import BLOCKS, FLIGHTS, INDEXES, POOLS, SEQS, SLOTS, implies, theorem
from kvproof.spec.text.state import (
    FREE,
    NONE,
    RESERVED,
    USED,
    State,
    free_in,
    has_entry,
    holds,
    num_known,
    pool_size,
    unused_in,
)


@theorem("no-use-after-free")
def live_tables_name_used_blocks(state: State) -> bool:
    """No table entry names a block that is free, evictable or reserved."""
    return all(implies(has_entry(state, s, i), state.status[state.table[s][i]] == USED) for s in SEQS for i in INDEXES)


@theorem("exclusive-writer")
def two_holders_are_counted_twice(state: State) -> bool:
    """A block with refcount 1 has one holder."""
    return all(
        implies(holds(state, s, b) and holds(state, r, b) and s != r, state.refcount[b] > 1)
        for s in SEQS
        for r in SEQS
        for b in BLOCKS
    )


@theorem("no-leak-at-rest")
def at_rest_every_block_is_unused(state: State) -> bool:
    """When no sequence is live and nothing is in flight, no block is used."""
    return (
        any(state.live[s] for s in SEQS)
        or any(state.uses[f] != NONE for f in FLIGHTS)
        or all(state.status[b] != USED for b in BLOCKS)
    )


@theorem("conservation")
def what_is_not_used_can_be_taken(state: State) -> bool:
    """When no block is used, every block that is not reserved can be taken."""
    return any(state.status[b] == USED for b in BLOCKS) or all(
        unused_in(state, p) + state.count[p][RESERVED] == pool_size(p)
        and implies(state.count[p][USED] > 0, state.status[state.member[p][USED][0]] != USED)
        for p in POOLS
    )


@theorem("lists-agree")
def positive_free_count_means_a_free_block(state: State) -> bool:
    """When the free counter of a pool is positive, the first block of its free list is free."""
    return all(implies(state.count[p][FREE] > 0, free_in(state, state.member[p][FREE][0], p)) for p in POOLS)


@theorem("sharing-equal")
def sharers_read_the_same(state: State) -> bool:
    """Two sequences that share a block have equal tokens wherever both know them."""
    return all(
        implies(
            has_entry(state, s, i)
            and has_entry(state, r, i)
            and state.table[s][i] == state.table[r][i]
            and o < num_known(state, s, i),
            state.tokens[s][i][o] == state.tokens[r][i][o],
        )
        for s in SEQS
        for r in SEQS
        for i in INDEXES
        for o in SLOTS
    )


@theorem("sharing-equal")
def a_block_is_shared_at_one_place_unless_identities_repeat(state: State) -> bool:
    """Two entries that name one block are at the same index of their tables, or begin with the same identity."""
    return all(
        implies(
            holds(state, s, b) and holds(state, r, b) and state.position[s][b] != state.position[r][b],
            num_known(state, s, state.position[s][b]) > 0
            and state.tokens[s][state.position[s][b]][0] == state.tokens[r][state.position[r][b]][0],
        )
        for s in SEQS
        for r in SEQS
        for b in BLOCKS
    )
