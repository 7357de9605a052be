"""The contract of a group swap: each entry is copied, follows its block, or finds its content in the other pool.

The contract starts after `begin_swap` of every sequence of the group, and ends before their `end_swap`. `swap_schedule`
has the order of the entries and the number of blocks that it takes. Evictions come before.
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
    Swap,
    blocks_are_at_one_place,
    blocks_are_counted,
    blocks_move_from_one_place,
    blocks_move_once,
    entries_are_distinct,
    entries_move_in_order,
    have_one_twin,
    is_swapped,
    names_are_kept,
    nothing_has_moved,
    swap_is_admitted,
    twins_are_distinct,
    twins_are_found,
)
from kvproof.spec.language import BLOCKS, INDEXES, SEQS, SLOTS, BlockId, SeqId, contract, function, implies, predicate
from kvproof.spec.text.state import (
    FREE,
    NONE,
    USED,
    State,
    first_of_list,
    free_in,
    has_entry,
    holds,
    is_pending,
    num_done,
    pool_of,
)
from kvproof.spec.text.swap_rules import follow_entry, move_entry, rehit_entry


@predicate
def swap_precondition(start: State, swap: Swap) -> bool:
    """The entries of the group can move in that order, and there are as many free blocks as that takes."""
    return (
        nothing_has_moved(start, swap.pool)
        and entries_move_in_order(start, swap)
        and blocks_move_once(start, swap)
        and entries_are_distinct(start, swap.pool)
        and twins_are_found(start, swap)
        and blocks_are_counted(start, swap)
        and swap_is_admitted(start, swap)
    )


@function
def swap_variant(swap: Swap) -> int:
    """The entries that have not moved."""
    return swap.num_steps - swap.num_fired


@predicate
def swap_invariant(start: State, state: State, swap: Swap) -> bool:
    """Every entry whose step is done is in the other pool with its content; nothing else has changed."""
    return (
        swap_precondition(start, swap)
        and blocks_are_at_one_place(start, swap.pool)
        and blocks_move_from_one_place(start, swap)
        and twins_are_distinct(start, swap)
        and names_are_kept(start, state)
        and places_so_far(start, state, swap)
        and turns_so_far(start, state, swap)
        and tables_so_far(start, state, swap)
        and targets_so_far(start, state, swap)
        and sources_so_far(start, state, swap.pool)
        and twins_so_far(start, state, swap)
        and free_blocks_so_far(start, state, swap)
        and blocks_so_far(start, state, swap.pool)
        and who_refers_is_known(state)
        and contents_are_kept(start, state, swap.pool)
        and copies_so_far(start, state, swap)
    )


@function
def next_block(state: State, swap: Swap) -> int:
    """The block that the next entry names."""
    return state.table[swap.seq_of[swap.num_fired]][state.moving[swap.seq_of[swap.num_fired]]]


@predicate
def is_its_turn(state: State, swap: Swap) -> bool:
    """The block of the next entry moves now, or has moved from the same index of another table."""
    return (
        0 <= swap.first_step[next_block(state, swap)]
        and swap.first_step[next_block(state, swap)] <= swap.num_fired
        and swap.next_index[swap.seq_of[swap.first_step[next_block(state, swap)]]][
            swap.first_step[next_block(state, swap)]
        ]
        == state.moving[swap.seq_of[swap.num_fired]]
    )


@predicate
def next_is_copied(state: State, swap: Swap, seq: SeqId, block: BlockId) -> bool:
    """The next entry is the first of its block, and the block has no twin: it moves to any free block."""
    return (
        seq == swap.seq_of[swap.num_fired]
        and is_its_turn(state, swap)
        and swap.first_step[next_block(state, swap)] == swap.num_fired
        and swap.twin_of[next_block(state, swap)] == NONE
        and free_in(state, block, 1 - swap.pool)
    )


@predicate
def next_follows(state: State, swap: Swap, seq: SeqId, leader: SeqId) -> bool:
    """The block of the next entry has moved with another sequence, and the entry follows it."""
    return (
        seq == swap.seq_of[swap.num_fired]
        and is_its_turn(state, swap)
        and swap.first_step[next_block(state, swap)] < swap.num_fired
        and leader == swap.seq_of[swap.first_step[next_block(state, swap)]]
    )


@predicate
def next_is_found(state: State, swap: Swap, seq: SeqId, twin: BlockId) -> bool:
    """The next entry is the first of its block, and moves to the twin of the block."""
    return (
        seq == swap.seq_of[swap.num_fired]
        and is_its_turn(state, swap)
        and swap.first_step[next_block(state, swap)] == swap.num_fired
        and twin == swap.twin_of[next_block(state, swap)]
    )


@predicate
def the_next_entry_can_move(state: State, swap: Swap) -> bool:
    """The block of the next entry has moved, or has a twin, or there is a free block in the other pool."""
    return is_its_turn(state, swap) and (
        swap.first_step[next_block(state, swap)] < swap.num_fired
        or swap.twin_of[next_block(state, swap)] != NONE
        or state.count[1 - swap.pool][FREE] > 0
    )


@function
def next_seq(swap: Swap) -> int:
    """The sequence that moves its next entry."""
    return swap.seq_of[swap.num_fired]


@function
def block_to_copy_to(state: State, swap: Swap) -> int:
    """A free block of the other pool."""
    return first_of_list(state, 1 - swap.pool, FREE)


@function
def next_leader(state: State, swap: Swap) -> int:
    """The sequence with which the block of the next entry moved."""
    return swap.seq_of[swap.first_step[next_block(state, swap)]]


@function
def next_twin(state: State, swap: Swap) -> int:
    """The twin of the block of the next entry."""
    return swap.twin_of[next_block(state, swap)]


@predicate
def is_only_in_group(start: State, block: int, pool: int) -> bool:
    """No sequence outside of the group holds the block."""
    return all(implies(holds(start, s, block), is_swapped(start, s, pool)) for s in SEQS)


@contract(
    "swap-mapping",
    move_entry,
    precondition=swap_precondition,
    variant=swap_variant,
    loop_invariant=swap_invariant,
    choice=next_is_copied,
    can_choose=the_next_entry_can_move,
    others={follow_entry: next_follows, rehit_entry: next_is_found},
    witnesses={
        move_entry: {"seq": next_seq, "block": block_to_copy_to},
        follow_entry: {"seq": next_seq, "leader": next_leader},
        rehit_entry: {"seq": next_seq, "twin": next_twin},
    },
)
@predicate
def a_swap_moves_what_is_shared_once(start: State, state: State, swap: Swap) -> bool:
    """A swap takes exactly the blocks that admission has counted, keeps sharing, and brings every content along."""
    return (
        start.count[1 - swap.pool][FREE] - state.count[1 - swap.pool][FREE] == swap.num_to_take[0]
        and all(implies(is_swapped(start, s, swap.pool), state.moving[s] == state.num_blocks[s]) for s in SEQS)
        and all(
            implies(
                is_swapped(start, s, swap.pool)
                and has_entry(start, s, i)
                and is_swapped(start, r, swap.pool)
                and has_entry(start, r, j),
                (
                    start.table[s][i] == start.table[r][j]
                    or have_one_twin(swap.twin_of, start.table[s][i], start.table[r][j])
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
                is_swapped(start, s, swap.pool)
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
                pool_of(b) == swap.pool and start.status[b] == USED,
                (state.status[b] != USED) == (is_only_in_group(start, b, swap.pool) and not is_pending(start, b)),
            )
            for b in BLOCKS
        )
        and all(
            implies(not is_swapped(start, s, swap.pool), state.table[s][i] == start.table[s][i])
            for s in SEQS
            for i in INDEXES
        )
    )
