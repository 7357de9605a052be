"""The parts of the loop invariant of a group swap: what holds after any number of its steps.

`swap_schedule` has the parameters; `swap_contract` puts the parts together.
"""

from kvproof.spec.contracts.swap_schedule import Swap, have_one_twin, is_swapped
from kvproof.spec.language import BLOCKS, FLIGHTS, INDEXES, SEQS, SLOTS, STEPS, implies, predicate
from kvproof.spec.text.state import FREE, NONE, USED, State, holds, pool_of


@predicate
def has_moved(start: State, state: State, seq: int, index: int, pool: int) -> bool:
    """The entry belongs to the group and has moved to the other pool."""
    return is_swapped(start, seq, pool) and start.first[seq] <= index and index < state.moving[seq]


@predicate
def tables_so_far(start: State, state: State, swap: Swap) -> bool:
    """Entries that have not moved are unchanged. Two that have moved share a block if they did before, or by a twin."""
    return all(
        implies(not has_moved(start, state, s, i, swap.pool), state.table[s][i] == start.table[s][i])
        for s in SEQS
        for i in INDEXES
    ) and all(
        implies(
            has_moved(start, state, s, i, swap.pool) and has_moved(start, state, r, j, swap.pool),
            (state.table[s][i] == state.table[r][j])
            == (
                start.table[s][i] == start.table[r][j]
                or have_one_twin(swap.twin_of, start.table[s][i], start.table[r][j])
            ),
        )
        for s in SEQS
        for i in INDEXES
        for r in SEQS
        for j in INDEXES
    )


@predicate
def places_so_far(start: State, state: State, swap: Swap) -> bool:
    """Each sequence of the group has moved its entries before `next_index`; the others have moved none."""
    return (
        swap.num_fired <= swap.num_steps
        and all(
            state.moving[s]
            == (swap.next_index[s][swap.num_fired] if is_swapped(start, s, swap.pool) else start.moving[s])
            for s in SEQS
        )
        and all(
            implies(k < swap.num_fired, swap.next_index[swap.seq_of[k]][k] < state.moving[swap.seq_of[k]])
            for k in STEPS
        )
    )


@predicate
def turns_so_far(start: State, state: State, swap: Swap) -> bool:
    """The first step of every block that has moved is done."""
    return all(
        implies(has_moved(start, state, s, i, swap.pool), swap.first_step[start.table[s][i]] < swap.num_fired)
        for s in SEQS
        for i in INDEXES
    )


@predicate
def targets_so_far(start: State, state: State, swap: Swap) -> bool:
    """An entry that has moved names its twin, or else a block that was free."""
    return all(
        implies(
            has_moved(start, state, s, i, swap.pool),
            start.status[state.table[s][i]] == FREE
            if swap.twin_of[start.table[s][i]] == NONE
            else state.table[s][i] == swap.twin_of[start.table[s][i]],
        )
        for s in SEQS
        for i in INDEXES
    )


@predicate
def sources_so_far(start: State, state: State, pool: int) -> bool:
    """In the old pool, each sequence holds the blocks that it held, except for those that have moved."""
    return all(
        implies(
            pool_of(b) == pool,
            holds(state, s, b)
            == (holds(start, s, b) and not (is_swapped(start, s, pool) and start.position[s][b] < state.moving[s])),
        )
        for s in SEQS
        for b in BLOCKS
    )


@predicate
def twins_so_far(start: State, state: State, swap: Swap) -> bool:
    """A sequence does not hold the twin of a block that has not moved."""
    return all(
        implies(
            is_swapped(start, s, swap.pool)
            and holds(start, s, b)
            and start.position[s][b] >= state.moving[s]
            and swap.twin_of[b] != NONE,
            not holds(state, s, swap.twin_of[b]),
        )
        for s in SEQS
        for b in BLOCKS
    )


@predicate
def free_blocks_so_far(start: State, state: State, swap: Swap) -> bool:
    """The steps took as many free blocks as counted, and no block of the other pool became free."""
    return start.count[1 - swap.pool][FREE] - state.count[1 - swap.pool][FREE] == swap.num_to_take[
        0
    ] - swap.num_to_take[swap.num_fired] and all(
        implies(pool_of(b) == 1 - swap.pool and state.status[b] == FREE, start.status[b] == FREE) for b in BLOCKS
    )


@predicate
def blocks_so_far(start: State, state: State, pool: int) -> bool:
    """Blocks of the new pool that were not free, and blocks of the old pool still in use, keep their contents."""
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


@predicate
def who_refers_is_known(state: State) -> bool:
    """A block with references has a first holder."""
    return all(implies(state.refcount[b] > 0, holds(state, state.holder[b][0], b)) for b in BLOCKS)


@predicate
def contents_are_kept(start: State, state: State, pool: int) -> bool:
    """KV was written only to blocks of the other pool that were free; no token and no content changed."""
    return (
        all(
            implies(pool_of(b) == pool or start.status[b] != FREE, state.memory[b][o] == start.memory[b][o])
            for b in BLOCKS
            for o in SLOTS
        )
        and all(state.content[b][o] == start.content[b][o] for b in BLOCKS for o in SLOTS)
        and all(state.tokens[s][i][o] == start.tokens[s][i][o] for s in SEQS for i in INDEXES for o in SLOTS)
    )


@predicate
def copies_so_far(start: State, state: State, swap: Swap) -> bool:
    """The copy of a block has all that was written in the block."""
    return all(
        implies(
            has_moved(start, state, s, i, swap.pool) and swap.twin_of[start.table[s][i]] == NONE,
            state.num_written[state.table[s][i]] == start.num_written[start.table[s][i]],
        )
        for s in SEQS
        for i in INDEXES
    ) and all(
        implies(
            has_moved(start, state, s, i, swap.pool) and swap.twin_of[start.table[s][i]] == NONE,
            state.memory[state.table[s][i]][o] == start.memory[start.table[s][i]][o],
        )
        for s in SEQS
        for i in INDEXES
        for o in SLOTS
    )
