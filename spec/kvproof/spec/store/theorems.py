"""The theorems of stores: claims that follow from the invariants."""

from kvproof.spec.language import BLOCKS, FLIGHTS, SLOTS, implies, theorem
from kvproof.spec.store.domains import KEYS, PINS, TIERS
from kvproof.spec.store.state import (
    EVICTABLE,
    FREE,
    HELD,
    NONE,
    PROMISE,
    RESERVED,
    SUBMITTED,
    WRITE,
    StoreState,
    first_of_list,
    first_reader,
    has_content,
    is_resident,
    is_written,
    source_of,
    target_of,
    unused_in,
)


@theorem("hit-written")
def hits_are_written_to_their_end(state: StoreState) -> bool:
    """A resident entry was written to its end, and has the content of its key."""
    return all(
        implies(
            is_resident(state, t, k),
            is_written(state, state.entry[t][k]) and has_content(state, state.entry[t][k], k),
        )
        for t in TIERS
        for k in KEYS
    )


@theorem("promise-kept")
def what_was_promised_stays(state: StoreState) -> bool:
    """A block that was promised is held, is written to its end, and has the content of its key."""
    return all(
        implies(
            state.kind[p] == PROMISE,
            state.status[state.pinned[p]] == HELD
            and is_written(state, state.pinned[p])
            and has_content(state, state.pinned[p], state.key[state.pinned[p]]),
        )
        for p in PINS
    )


@theorem("one-writer")
def a_block_has_one_writer_and_then_no_reader(state: StoreState) -> bool:
    """Two pins of writers, and two transfers, never write one block; what is written has no reader."""
    return all(
        implies(
            state.kind[p] == WRITE and state.kind[q] != NONE and state.pinned[q] == state.pinned[p],
            p == q and state.reads[state.pinned[p]] == 0,
        )
        for p in PINS
        for q in PINS
    ) and all(
        implies(
            state.writes_by[f] != NONE and state.writes_by[g] != NONE and target_of(state, f) == target_of(state, g),
            f == g,
        )
        for f in FLIGHTS
        for g in FLIGHTS
    )


@theorem("source-held")
def blocks_of_transfers_are_held(state: StoreState) -> bool:
    """While a transfer is under way, its source is written and held, its target is reserved, and both are different."""
    return all(
        implies(
            state.reads_by[f] != NONE,
            state.status[source_of(state, f)] == HELD
            and is_written(state, source_of(state, f))
            and source_of(state, f) != target_of(state, f),
        )
        and implies(state.writes_by[f] != NONE, state.status[target_of(state, f)] == RESERVED)
        for f in FLIGHTS
    )


@theorem("abort-unseen")
def what_is_staged_is_no_hit(state: StoreState) -> bool:
    """A block that is free, or that a writer has not committed, is no hit for any key."""
    return all(
        implies(
            is_resident(state, t, k),
            state.entry[t][k] != b or (state.status[b] != FREE and state.writer[b] == NONE),
        )
        for t in TIERS
        for k in KEYS
        for b in BLOCKS
    )


@theorem("tiers-agree")
def equal_keys_have_equal_content(state: StoreState) -> bool:
    """Where two tiers have a key, they have the same content, slot by slot."""
    return all(
        implies(
            is_resident(state, t, k) and is_resident(state, u, k) and o < state.length[k],
            state.memory[state.entry[t][k]][o] == state.memory[state.entry[u][k]][o],
        )
        for t in TIERS
        for u in TIERS
        for k in KEYS
        for o in SLOTS
    )


@theorem("no-leak-at-rest")
def at_rest_every_block_can_be_taken(state: StoreState) -> bool:
    """When no pin is left, every block of a tier is free or evictable, and no transfer is under way."""
    return any(state.kind[p] != NONE for p in PINS) or (
        all(
            state.status[b] == FREE or state.status[b] == EVICTABLE or state.kind[first_reader(state, b)] != NONE
            for b in BLOCKS
        )
        and all(state.phase[f] != SUBMITTED for f in FLIGHTS)
    )


@theorem("refusal-needed")
def a_store_fits_where_a_block_is_unused(state: StoreState) -> bool:
    """If a free or evictable block is counted, then there is one: it can be taken at once, or after its eviction."""
    return all(
        implies(
            state.count[t][FREE] > 0,
            state.status[first_of_list(state, t, FREE)] == FREE and state.tier[first_of_list(state, t, FREE)] == t,
        )
        and implies(
            state.count[t][EVICTABLE] > 0,
            state.status[first_of_list(state, t, EVICTABLE)] == EVICTABLE
            and state.tier[first_of_list(state, t, EVICTABLE)] == t,
        )
        for t in TIERS
    )


@theorem("refusal-needed")
def what_is_not_unused_is_pinned(state: StoreState) -> bool:
    """If no free or evictable block is counted, then somebody has a pin on every block of the tier."""
    return all(
        implies(
            state.tier[b] == t and unused_in(state, t) == 0,
            state.status[b] == RESERVED or state.status[b] == HELD,
        )
        for t in TIERS
        for b in BLOCKS
    )


@theorem("no-use-after-free")
def pinned_blocks_are_in_use(state: StoreState) -> bool:
    """A block on which somebody has a pin is neither free nor evictable, and keeps its key."""
    return all(
        implies(
            state.kind[p] != NONE,
            (state.status[state.pinned[p]] == HELD or state.status[state.pinned[p]] == RESERVED)
            and state.key[state.pinned[p]] != NONE,
        )
        for p in PINS
    )
