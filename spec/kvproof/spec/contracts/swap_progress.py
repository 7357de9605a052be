"""How far the swap of a group has come: what holds after any number of its firings, one word each.

`swap_schedule` says what the maps mean; `swap_contract` puts the words together.
"""

from kvproof.spec.contracts.swap_schedule import are_found_in_one, is_swapped
from kvproof.spec.language import (
    BLOCKS,
    FLIGHTS,
    INDEXES,
    SEQS,
    SLOTS,
    STEPS,
    BlockNumbers,
    Places,
    StepNumbers,
    implies,
    word,
)
from kvproof.spec.text.state import FREE, NONE, USED, State, holds, pool_of


@word
def has_moved(start: State, state: State, seq: int, index: int, pool: int) -> bool:
    """The entry is one of the group, and over there."""
    return is_swapped(start, seq, pool) and start.first[seq] <= index and index < state.moving[seq]


@word
def tables_so_far(start: State, state: State, pool: int, found: BlockNumbers) -> bool:
    """What has not moved is as it was; of what has moved, two entries share a block if they did, or if it was found."""
    return all(
        implies(not has_moved(start, state, s, i, pool), state.table[s][i] == start.table[s][i])
        for s in SEQS
        for i in INDEXES
    ) and all(
        implies(
            has_moved(start, state, s, i, pool) and has_moved(start, state, r, j, pool),
            (state.table[s][i] == state.table[r][j])
            == (
                start.table[s][i] == start.table[r][j] or are_found_in_one(found, start.table[s][i], start.table[r][j])
            ),
        )
        for s in SEQS
        for i in INDEXES
        for r in SEQS
        for j in INDEXES
    )


@word
def places_so_far(
    start: State, state: State, pool: int, num_steps: int, who: StepNumbers, place: Places, fired: int
) -> bool:
    """Each sequence of the group is at its place, the others are where they were."""
    return (
        fired <= num_steps
        and all(state.moving[s] == (place[s][fired] if is_swapped(start, s, pool) else start.moving[s]) for s in SEQS)
        and all(implies(k < fired, place[who[k]][k] < state.moving[who[k]]) for k in STEPS)
    )


@word
def turns_so_far(start: State, state: State, pool: int, first_step: BlockNumbers, fired: int) -> bool:
    """What has moved had its turn."""
    return all(
        implies(has_moved(start, state, s, i, pool), first_step[start.table[s][i]] < fired)
        for s in SEQS
        for i in INDEXES
    )


@word
def targets_so_far(start: State, state: State, pool: int, found: BlockNumbers) -> bool:
    """What has moved is in the block that was found, or in one that was free."""
    return all(
        implies(
            has_moved(start, state, s, i, pool),
            start.status[state.table[s][i]] == FREE
            if found[start.table[s][i]] == NONE
            else state.table[s][i] == found[start.table[s][i]],
        )
        for s in SEQS
        for i in INDEXES
    )


@word
def sources_so_far(start: State, state: State, pool: int) -> bool:
    """Over here each sequence holds what it held, but for what has moved."""
    return all(
        implies(
            pool_of(b) == pool,
            holds(state, s, b)
            == (holds(start, s, b) and not (is_swapped(start, s, pool) and start.position[s][b] < state.moving[s])),
        )
        for s in SEQS
        for b in BLOCKS
    )


@word
def twins_so_far(start: State, state: State, pool: int, found: BlockNumbers) -> bool:
    """What was found for an entry that has not moved is not held by its sequence."""
    return all(
        implies(
            is_swapped(start, s, pool)
            and holds(start, s, b)
            and start.position[s][b] >= state.moving[s]
            and found[b] != NONE,
            not holds(state, s, found[b]),
        )
        for s in SEQS
        for b in BLOCKS
    )


@word
def free_blocks_so_far(start: State, state: State, pool: int, num_to_take: StepNumbers, fired: int) -> bool:
    """As many free blocks were taken as the firings so far take; nothing became free over there."""
    return start.count[1 - pool][FREE] - state.count[1 - pool][FREE] == num_to_take[0] - num_to_take[fired] and all(
        implies(pool_of(b) == 1 - pool and state.status[b] == FREE, start.status[b] == FREE) for b in BLOCKS
    )


@word
def blocks_so_far(start: State, state: State, pool: int) -> bool:
    """What was not free over there is as it was; what is used over here still holds what it held."""
    return (
        all(
            state.uses[f] == start.uses[f] and state.fills[f] == start.fills[f] and state.brings[f] == start.brings[f]
            for f in FLIGHTS
        )
        and all(state.pins[b] == start.pins[b] and state.filler[b] == start.filler[b] for b in BLOCKS)
        and all(
            implies(
                start.status[b] != FREE if pool_of(b) == 1 - pool else state.status[b] == USED,
                state.cached[b] == start.cached[b] and state.num_written[b] == start.num_written[b],
            )
            for b in BLOCKS
        )
    )


@word
def who_refers_is_known(state: State) -> bool:
    """A block that is referred to has a first holder."""
    return all(implies(state.refcount[b] > 0, holds(state, state.holder[b][0], b)) for b in BLOCKS)


@word
def contents_are_kept(start: State, state: State, pool: int) -> bool:
    """No KV was written but in blocks that were free over there; no token and no content has changed."""
    return (
        all(
            implies(pool_of(b) == pool or start.status[b] != FREE, state.memory[b][o] == start.memory[b][o])
            for b in BLOCKS
            for o in SLOTS
        )
        and all(state.content[b][o] == start.content[b][o] for b in BLOCKS for o in SLOTS)
        and all(state.tokens[s][i][o] == start.tokens[s][i][o] for s in SEQS for i in INDEXES for o in SLOTS)
    )


@word
def copies_so_far(start: State, state: State, pool: int, found: BlockNumbers) -> bool:
    """What was copied is there, as far as it was written."""
    return all(
        implies(
            has_moved(start, state, s, i, pool) and found[start.table[s][i]] == NONE,
            state.num_written[state.table[s][i]] == start.num_written[start.table[s][i]],
        )
        for s in SEQS
        for i in INDEXES
    ) and all(
        implies(
            has_moved(start, state, s, i, pool) and found[start.table[s][i]] == NONE,
            state.memory[state.table[s][i]][o] == start.memory[start.table[s][i]][o],
        )
        for s in SEQS
        for i in INDEXES
        for o in SLOTS
    )
