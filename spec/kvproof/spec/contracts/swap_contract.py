"""What the swap of a group does, for every size: each entry is copied, follows its block, or is found again.

It begins when every sequence of the group has begun to be swapped, and ends before they end their swap; `swap_schedule`
says in which order entries move, and how many blocks that takes. Evicting comes before: what is taken is free.
"""

from kvproof.spec.contracts.swap_progress import (
    blocks_so_far,
    contents_are_kept,
    copies_so_far,
    free_blocks_so_far,
    places_so_far,
    sources_so_far,
    tables_so_far,
    targets_so_far,
    turns_so_far,
    twins_so_far,
    who_refers_is_known,
)
from kvproof.spec.contracts.swap_schedule import (
    are_found_in_one,
    blocks_are_at_one_place,
    blocks_are_counted,
    blocks_move_from_one_place,
    blocks_move_once,
    entries_are_told_apart,
    entries_move_in_order,
    is_swapped,
    names_are_kept,
    nothing_has_moved,
    swap_is_admitted,
    twins_are_found,
    twins_are_told_apart,
)
from kvproof.spec.language import (
    BLOCKS,
    INDEXES,
    SEQS,
    SLOTS,
    BlockId,
    BlockNumbers,
    Count,
    Places,
    PoolId,
    SeqId,
    StepNumbers,
    contract,
    implies,
    word,
)
from kvproof.spec.text.state import FREE, NONE, USED, State, free_in, has_entry, holds, is_pending, num_done, pool_of
from kvproof.spec.text.swap_rules import follow_entry, move_entry, rehit_entry


@word
def swapping_starts(
    start: State,
    pool: PoolId,
    num_steps: Count,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
    fired: Count,
) -> bool:
    """The group is to be moved in that order, and there are as many free blocks as that takes."""
    return (
        nothing_has_moved(start, pool)
        and entries_move_in_order(start, pool, num_steps, who, place)
        and blocks_move_once(start, num_steps, who, place, first_step)
        and entries_are_told_apart(start, pool)
        and twins_are_found(start, pool, found)
        and blocks_are_counted(start, num_steps, who, place, first_step, found, num_to_take)
        and swap_is_admitted(start, pool, num_to_take)
    )


@word
def entries_to_move(
    state: State,
    pool: PoolId,
    num_steps: Count,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
    fired: Count,
) -> int:
    """How many entries have not moved."""
    return num_steps - fired


@word
def swapping_so_far(
    start: State,
    state: State,
    pool: PoolId,
    num_steps: Count,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
    fired: Count,
) -> bool:
    """Every entry whose turn has come is over there, its content with it; nothing else has changed."""
    return (
        swapping_starts(start, pool, num_steps, who, place, first_step, found, num_to_take, fired)
        and blocks_are_at_one_place(start, pool)
        and blocks_move_from_one_place(start, num_steps, who, place, first_step)
        and twins_are_told_apart(start, pool, found)
        and names_are_kept(start, state)
        and places_so_far(start, state, pool, num_steps, who, place, fired)
        and turns_so_far(start, state, pool, first_step, fired)
        and tables_so_far(start, state, pool, found)
        and targets_so_far(start, state, pool, found)
        and sources_so_far(start, state, pool)
        and twins_so_far(start, state, pool, found)
        and free_blocks_so_far(start, state, pool, num_to_take, fired)
        and blocks_so_far(start, state, pool)
        and who_refers_is_known(state)
        and contents_are_kept(start, state, pool)
        and copies_so_far(start, state, pool, found)
    )


@word
def is_its_turn(state: State, who: StepNumbers, place: Places, first_step: BlockNumbers, fired: int) -> bool:
    """The block of the next entry moves now, or has moved from the same place of another table."""
    return (
        0 <= first_step[next_block(state, who, fired)]
        and first_step[next_block(state, who, fired)] <= fired
        and place[who[first_step[next_block(state, who, fired)]]][first_step[next_block(state, who, fired)]]
        == state.moving[who[fired]]
    )


@word
def next_block(state: State, who: StepNumbers, fired: int) -> int:
    """The block that the next entry names."""
    return state.table[who[fired]][state.moving[who[fired]]]


@word
def next_is_copied(
    state: State,
    pool: PoolId,
    num_steps: Count,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
    fired: Count,
    seq: SeqId,
    block: BlockId,
) -> bool:
    """The next entry is the first of its block, whose content is found nowhere: it moves to any free block."""
    return (
        seq == who[fired]
        and is_its_turn(state, who, place, first_step, fired)
        and first_step[next_block(state, who, fired)] == fired
        and found[next_block(state, who, fired)] == NONE
        and free_in(state, block, 1 - pool)
    )


@word
def next_follows(
    state: State,
    pool: PoolId,
    num_steps: Count,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
    fired: Count,
    seq: SeqId,
    leader: SeqId,
) -> bool:
    """The block of the next entry has moved with another sequence, which is followed."""
    return (
        seq == who[fired]
        and is_its_turn(state, who, place, first_step, fired)
        and first_step[next_block(state, who, fired)] < fired
        and leader == who[first_step[next_block(state, who, fired)]]
    )


@word
def next_is_found(
    state: State,
    pool: PoolId,
    num_steps: Count,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
    fired: Count,
    seq: SeqId,
    twin: BlockId,
) -> bool:
    """The next entry is the first of its block, and its content is found."""
    return (
        seq == who[fired]
        and is_its_turn(state, who, place, first_step, fired)
        and first_step[next_block(state, who, fired)] == fired
        and twin == found[next_block(state, who, fired)]
    )


@word
def the_next_entry_can_move(
    state: State,
    pool: PoolId,
    num_steps: Count,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
    fired: Count,
) -> bool:
    """Its block has moved, or is found, or there is a free block over there."""
    return is_its_turn(state, who, place, first_step, fired) and (
        first_step[next_block(state, who, fired)] < fired
        or found[next_block(state, who, fired)] != NONE
        or state.count[1 - pool][FREE] > 0
    )


@word
def is_only_in_group(start: State, block: int, pool: int) -> bool:
    """No sequence outside of the group holds the block."""
    return all(implies(holds(start, s, block), is_swapped(start, s, pool)) for s in SEQS)


@contract(
    "swap-mapping",
    move_entry,
    starts=swapping_starts,
    left=entries_to_move,
    so_far=swapping_so_far,
    choice=next_is_copied,
    can_choose=the_next_entry_can_move,
    others={follow_entry: next_follows, rehit_entry: next_is_found},
)
@word
def a_swap_moves_what_is_shared_once(
    start: State,
    state: State,
    pool: PoolId,
    num_steps: Count,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
    fired: Count,
) -> bool:
    """A swap takes exactly the blocks that admission has counted, keeps what is shared, and its content arrives."""
    return (
        start.count[1 - pool][FREE] - state.count[1 - pool][FREE] == num_to_take[0]
        and all(implies(is_swapped(start, s, pool), state.moving[s] == state.num_blocks[s]) for s in SEQS)
        and all(
            implies(
                is_swapped(start, s, pool)
                and has_entry(start, s, i)
                and is_swapped(start, r, pool)
                and has_entry(start, r, j),
                (
                    start.table[s][i] == start.table[r][j]
                    or are_found_in_one(found, start.table[s][i], start.table[r][j])
                )
                == (state.table[s][i] == state.table[r][j]),
            )
            for s in SEQS
            for i in INDEXES
            for r in SEQS
            for j in INDEXES
        )
        and all(
            implies(
                is_swapped(start, s, pool)
                and has_entry(start, s, i)
                and o < num_done(start, s, i)
                and state.filler[state.table[s][i]] == NONE,
                state.memory[state.table[s][i]][o] == start.memory[start.table[s][i]][o]
                and o < state.num_written[state.table[s][i]],
            )
            for s in SEQS
            for i in INDEXES
            for o in SLOTS
        )
        and all(
            implies(
                pool_of(b) == pool and start.status[b] == USED,
                (state.status[b] != USED) == (is_only_in_group(start, b, pool) and not is_pending(start, b)),
            )
            for b in BLOCKS
        )
        and all(
            implies(not is_swapped(start, s, pool), state.table[s][i] == start.table[s][i])
            for s in SEQS
            for i in INDEXES
        )
    )
