"""Which evictable block is evicted first: a policy on top of the rules, which leave the choice open.

Least recently used: the block that was used longest ago is evicted first. Among blocks used equally long ago, the one
that ends the longest prefix goes first, because more prompts can hit a shorter prefix. A policy says what counts as a
use: each step that reads the block (BLOCK_LRU), its release by the last sequence that held it (SEQUENCE_LRU), or this
release and each look-up that finds the block (RELEASE_LRU). EMPTY_FIRST_LRU is SEQUENCE_LRU, and no block is evicted
while a block without content is free. Of a store, the key that was used longest ago goes first (KEY_LRU).

A manager itself knows when a block was used and how long its prefix is; here these are arbitrary maps. What is proved:
if every evicted block is one that no other goes before, then no number of evictions takes a block while another one
should have gone before it.
"""

from kvproof.spec.language import BLOCKS, Ages, BlockId, Count, PoolId, contract, function, implies, least, predicate
from kvproof.spec.text.cache_rules import evict
from kvproof.spec.text.state import EVICTABLE, FREE, State, first_of_list, pool_of, unused_in

BLOCK_LRU, SEQUENCE_LRU = "block-lru", "sequence-lru"  # what a manager can declare
RELEASE_LRU, EMPTY_FIRST_LRU = "release-lru", "empty-first-lru"
KEY_LRU = "key-lru"  # what a store can declare


def was_used_before(last_perhaps: int, last_surely: int) -> bool:
    """A key goes before another one if whatever may have been its last use was before a sure use of the other."""
    return last_perhaps < last_surely


@predicate
def goes_before(last_used: Ages, prefix: Ages, block: int, other: int) -> bool:
    """The block was used longer ago than the other, or equally long ago, with a longer prefix."""
    return last_used[block] < last_used[other] or (
        last_used[block] == last_used[other] and prefix[block] > prefix[other]
    )


@predicate
def is_evictable_in(state: State, block: int, pool: int) -> bool:
    """The block is evictable, in that pool."""
    return state.status[block] == EVICTABLE and pool_of(block) == pool


@predicate
def eviction_precondition(start: State, pool: PoolId, num_wanted: Count) -> bool:
    """At most as many blocks are free as are wanted, and there are enough evictable ones."""
    return start.count[pool][FREE] <= num_wanted and num_wanted <= unused_in(start, pool)


@function
def eviction_variant(state: State, pool: PoolId, num_wanted: Count) -> int:
    """The free blocks that are still missing."""
    return num_wanted - state.count[pool][FREE]


@predicate
def is_evicted(start: State, state: State, block: int, pool: int) -> bool:
    """The block was evictable in that pool, and is not evictable any more."""
    return is_evictable_in(start, block, pool) and state.status[block] != EVICTABLE


@predicate
def eviction_invariant(
    start: State, state: State, pool: PoolId, num_wanted: Count, last_used: Ages, prefix: Ages
) -> bool:
    """No block that is still evictable goes before one that was evicted."""
    return (
        state.count[pool][FREE] <= num_wanted
        and num_wanted <= unused_in(state, pool)
        and all(state.status[b] == (FREE if is_evicted(start, state, b, pool) else start.status[b]) for b in BLOCKS)
        and all(
            implies(
                is_evicted(start, state, b, pool) and is_evictable_in(state, o, pool),
                not goes_before(last_used, prefix, o, b),
            )
            for b in BLOCKS
            for o in BLOCKS
        )
    )


@predicate
def is_first_to_go(state: State, pool: PoolId, last_used: Ages, prefix: Ages, block: BlockId) -> bool:
    """The block is evictable, and no evictable block of its pool goes before it."""
    return is_evictable_in(state, block, pool) and all(
        implies(is_evictable_in(state, o, pool), not goes_before(last_used, prefix, o, block)) for o in BLOCKS
    )


@predicate
def a_block_is_evictable(state: State, pool: PoolId) -> bool:
    """The pool has an evictable block; as there are finitely many, there is one that none goes before."""
    return state.count[pool][EVICTABLE] > 0


@function
def an_evictable_block_of(state: State, pool: PoolId) -> int:
    """An evictable block of the pool, perhaps not the first to go."""
    return first_of_list(state, pool, EVICTABLE)


@contract(
    "eviction-order",
    evict,
    precondition=eviction_precondition,
    variant=eviction_variant,
    loop_invariant=eviction_invariant,
    choice=is_first_to_go,
    can_choose=a_block_is_evictable,
    witnesses={evict: {"block": least(is_evictable_in, goes_before, an_evictable_block_of)}},
)
@predicate
def the_least_recently_used_are_evicted(
    start: State, state: State, pool: PoolId, num_wanted: Count, last_used: Ages, prefix: Ages
) -> bool:
    """As many blocks are free as are wanted, and no evicted block should have outlived one that was not evicted."""
    return state.count[pool][FREE] == num_wanted and all(
        implies(
            is_evicted(start, state, b, pool) and is_evictable_in(state, o, pool),
            not goes_before(last_used, prefix, o, b),
        )
        for b in BLOCKS
        for o in BLOCKS
    )
