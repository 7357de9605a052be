"""Which evictable block goes first: a policy, on top of the rules, which leave the victim open.

Least recently used: the block that was used longest ago goes first; among equals the one that ends the longest prefix,
since the shorter ones are of use to more. When a block was used, and how long its prefix is, a manager knows for
itself; here they are maps that may be anything. What is proved: whoever always evicts a block that none goes before
has, after any number of evictions, evicted none before another that should have gone.
"""

from kvproof.spec.language import BLOCKS, Ages, BlockId, Count, PoolId, contract, implies, word
from kvproof.spec.text.cache_rules import evict
from kvproof.spec.text.state import EVICTABLE, FREE, State, pool_of, unused_in


@word
def goes_before(last_used: Ages, prefix: Ages, block: int, other: int) -> bool:
    """The block was used longer ago than the other, or equally long ago, with a longer prefix."""
    return last_used[block] < last_used[other] or (
        last_used[block] == last_used[other] and prefix[block] > prefix[other]
    )


@word
def is_evictable_in(state: State, block: int, pool: int) -> bool:
    """The block is evictable, in that pool."""
    return state.status[block] == EVICTABLE and pool_of(block) == pool


@word
def evicting_starts(start: State, pool: PoolId, num_wanted: Count, last_used: Ages, prefix: Ages) -> bool:
    """Fewer blocks are free than are wanted, and there are enough evictable ones."""
    return start.count[pool][FREE] <= num_wanted and num_wanted <= unused_in(start, pool)


@word
def blocks_to_evict(state: State, pool: PoolId, num_wanted: Count, last_used: Ages, prefix: Ages) -> int:
    """How many more blocks are wanted than are free."""
    return num_wanted - state.count[pool][FREE]


@word
def is_evicted(start: State, state: State, block: int, pool: int) -> bool:
    """The block was evictable in that pool, and is not any more."""
    return is_evictable_in(start, block, pool) and state.status[block] != EVICTABLE


@word
def evicting_so_far(start: State, state: State, pool: PoolId, num_wanted: Count, last_used: Ages, prefix: Ages) -> bool:
    """No block that is evictable still goes before one that was evicted."""
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


@word
def is_first_to_go(
    state: State, pool: PoolId, num_wanted: Count, last_used: Ages, prefix: Ages, block: BlockId
) -> bool:
    """The block is evictable, and no evictable block of its pool goes before it."""
    return is_evictable_in(state, block, pool) and all(
        implies(is_evictable_in(state, o, pool), not goes_before(last_used, prefix, o, block)) for o in BLOCKS
    )


@word
def a_block_is_evictable(state: State, pool: PoolId, num_wanted: Count, last_used: Ages, prefix: Ages) -> bool:
    """There is an evictable block in the pool; one that none goes before is among finitely many."""
    return state.count[pool][EVICTABLE] > 0


@contract(
    "eviction-order",
    evict,
    starts=evicting_starts,
    left=blocks_to_evict,
    so_far=evicting_so_far,
    choice=is_first_to_go,
    can_choose=a_block_is_evictable,
)
@word
def the_least_recently_used_are_evicted(
    start: State, state: State, pool: PoolId, num_wanted: Count, last_used: Ages, prefix: Ages
) -> bool:
    """As many blocks are free as are wanted, and none that was evicted should have outlived one that was not."""
    return state.count[pool][FREE] == num_wanted and all(
        implies(
            is_evicted(start, state, b, pool) and is_evictable_in(state, o, pool),
            not goes_before(last_used, prefix, o, b),
        )
        for b in BLOCKS
        for o in BLOCKS
    )
