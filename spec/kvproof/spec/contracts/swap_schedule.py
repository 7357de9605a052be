"""The parameters of a group swap, and what its contract requires of them.

The group is every sequence that has begun to be swapped out of `pool`. Its entries move one at a time, in any order of
the sequences, and each table from its front. A block that several sequences of the group name moves once. Its content
may be found in a block of the other pool, its *twin*; otherwise it is copied to a free block.

An identity fixes its position (`identity`). Rules do not require this, but a swap must: entries that name one block are
at the same index of their tables, and no two entries of one table have the same twin.
"""

from dataclasses import dataclass

from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    INDEXES,
    NUM_BLOCKS,
    NUM_SEQS,
    SEQS,
    STEPS,
    BlockNumbers,
    Count,
    Places,
    PoolId,
    StepNumbers,
    function,
    implies,
    predicate,
    same,
)
from kvproof.spec.text.admission import may_answer_ok
from kvproof.spec.text.state import FREE, NONE, State, has_entry, holds, num_done, num_known, num_promised, pool_of


@dataclass(frozen=True)
class Swap:
    """What a group swap is given: the order of its steps. Each step moves one table entry."""

    pool: PoolId  # the pool that the group leaves
    num_steps: Count
    seq_of: StepNumbers  # the sequence that each step moves an entry of
    next_index: Places  # of each sequence, the first entry that has not moved before each step
    first_step: BlockNumbers  # the first step that moves each block
    twin_of: BlockNumbers  # the block of the other pool that has the same content; NONE if there is none
    num_to_take: StepNumbers  # free blocks that are taken from each step on
    num_fired: Count  # steps done


@predicate
def is_swapped(start: State, seq: int, pool: int) -> bool:
    """The sequence is in the group."""
    return start.moving[seq] != NONE and start.home[seq] == pool


@function
def block_of_step(state: State, swap: Swap, step: int) -> int:
    """The block that a step moves from; in a state after the step, the block that it moved to."""
    return state.table[swap.seq_of[step]][swap.next_index[swap.seq_of[step]][step]]


@predicate
def entries_move_in_order(start: State, swap: Swap) -> bool:
    """Each step moves the next entry of a sequence of the group, until none is left."""
    return (
        all(
            implies(
                is_swapped(start, s, swap.pool),
                swap.next_index[s][0] == start.first[s] and swap.next_index[s][swap.num_steps] == start.num_blocks[s],
            )
            for s in SEQS
        )
        and all(
            implies(
                k < swap.num_steps,
                0 <= swap.seq_of[k]
                and swap.seq_of[k] < NUM_SEQS
                and is_swapped(start, swap.seq_of[k], swap.pool)
                and has_entry(start, swap.seq_of[k], swap.next_index[swap.seq_of[k]][k]),
            )
            for k in STEPS
        )
        and all(
            implies(
                k < swap.num_steps and n == k + 1,
                swap.next_index[s][n] == swap.next_index[s][k] + (1 if swap.seq_of[k] == s else 0),
            )
            for s in SEQS
            for k in STEPS
            for n in STEPS
        )
    )


@predicate
def blocks_move_once(start: State, swap: Swap) -> bool:
    """The first step that moves a block is known, and every other step that moves it comes later."""
    return all(
        implies(
            k < swap.num_steps,
            0 <= swap.first_step[block_of_step(start, swap, k)]
            and swap.first_step[block_of_step(start, swap, k)] <= k
            and block_of_step(start, swap, swap.first_step[block_of_step(start, swap, k)])
            == block_of_step(start, swap, k),
        )
        for k in STEPS
    )


@predicate
def entries_are_distinct(start: State, pool: int) -> bool:
    """Entries of the group that begin with the same identity are at the same index of their tables."""
    return all(
        implies(
            is_swapped(start, s, pool)
            and is_swapped(start, r, pool)
            and holds(start, s, b)
            and holds(start, r, c)
            and num_known(start, s, start.position[s][b]) > 0
            and num_known(start, r, start.position[r][c]) > 0
            and start.tokens[s][start.position[s][b]][0] == start.tokens[r][start.position[r][c]][0],
            start.position[s][b] == start.position[r][c],
        )
        for s in SEQS
        for r in SEQS
        for b in BLOCKS
        for c in BLOCKS
    )


@predicate
def blocks_are_at_one_place(start: State, pool: int) -> bool:
    """It follows that entries of the group that name one block are at the same index of their tables."""
    return all(
        implies(
            is_swapped(start, s, pool) and is_swapped(start, r, pool) and holds(start, s, b) and holds(start, r, b),
            start.position[s][b] == start.position[r][b],
        )
        for s in SEQS
        for r in SEQS
        for b in BLOCKS
    )


@predicate
def blocks_move_from_one_place(start: State, swap: Swap) -> bool:
    """Every step that moves a block moves it from the same index as the first such step."""
    return all(
        implies(
            k < swap.num_steps,
            swap.next_index[swap.seq_of[swap.first_step[block_of_step(start, swap, k)]]][
                swap.first_step[block_of_step(start, swap, k)]
            ]
            == swap.next_index[swap.seq_of[k]][k],
        )
        for k in STEPS
    )


@predicate
def is_found(start: State, seq: int, index: int, twin: int, pool: int) -> bool:
    """The block of the other pool has the content of the entry, written as far as the sequence may read it."""
    return (
        0 <= twin
        and twin < NUM_BLOCKS
        and pool_of(twin) == 1 - pool
        and index < start.num_full[seq]
        and start.cached[twin]
        and start.content[twin][0] == start.tokens[seq][index][0]
        and same(start.content[twin], start.tokens[seq][index], BLOCK_SIZE)
        and num_promised(start, twin) >= num_done(start, seq, index)
    )


@predicate
def twins_are_found(start: State, swap: Swap) -> bool:
    """The twin of a block has the content of every entry that names the block."""
    return all(
        implies(
            is_swapped(start, s, swap.pool) and has_entry(start, s, i) and swap.twin_of[start.table[s][i]] != NONE,
            is_found(start, s, i, swap.twin_of[start.table[s][i]], swap.pool),
        )
        for s in SEQS
        for i in INDEXES
    ) and all(
        implies(
            swap.twin_of[b] != NONE,
            0 <= swap.twin_of[b]
            and swap.twin_of[b] < NUM_BLOCKS
            and pool_of(swap.twin_of[b]) == 1 - swap.pool
            and start.status[swap.twin_of[b]] != FREE,
        )
        for b in BLOCKS
    )


@predicate
def have_one_twin(twin_of: BlockNumbers, block: int, other: int) -> bool:
    """The two blocks have the same twin: their contents were computed separately, and share one block from now on."""
    return twin_of[block] != NONE and twin_of[block] == twin_of[other]


@predicate
def twins_are_distinct(start: State, swap: Swap) -> bool:
    """It follows that no two blocks of one sequence have the same twin."""
    return all(
        implies(
            is_swapped(start, s, swap.pool)
            and holds(start, s, b)
            and holds(start, s, c)
            and have_one_twin(swap.twin_of, b, c),
            b == c,
        )
        for s in SEQS
        for b in BLOCKS
        for c in BLOCKS
    )


@predicate
def takes_a_block(start: State, swap: Swap, step: int) -> bool:
    """The step is the first that moves its block, and the block has no twin."""
    return (
        swap.first_step[block_of_step(start, swap, step)] == step
        and swap.twin_of[block_of_step(start, swap, step)] == NONE
    )


@predicate
def blocks_are_counted(start: State, swap: Swap) -> bool:
    """`num_to_take` counts, from each step on, the steps that take a block."""
    return (
        swap.num_to_take[swap.num_steps] == 0
        and all(swap.num_to_take[k] >= 0 for k in STEPS)
        and all(
            implies(
                k < swap.num_steps and n == k + 1,
                swap.num_to_take[k] == swap.num_to_take[n] + (1 if takes_a_block(start, swap, k) else 0),
            )
            for k in STEPS
            for n in STEPS
        )
    )


@predicate
def nothing_has_moved(start: State, pool: int) -> bool:
    """No entry of the group has moved, and no transfer fills a block of the group."""
    return all(
        implies(is_swapped(start, s, pool), start.live[s] and start.moving[s] == start.first[s]) for s in SEQS
    ) and all(
        implies(is_swapped(start, s, pool) and has_entry(start, s, i), start.filler[start.table[s][i]] == NONE)
        for s in SEQS
        for i in INDEXES
    )


@predicate
def swap_is_admitted(start: State, swap: Swap) -> bool:
    """Admission answers OK: the other pool has as many free blocks as all steps take."""
    return may_answer_ok(swap.num_to_take[0], start.count[1 - swap.pool][FREE], 0)


@predicate
def names_are_kept(start: State, state: State) -> bool:
    """Everything about a sequence except its table and `moving` is unchanged."""
    return all(
        state.live[s] == start.live[s]
        and state.ending[s] == start.ending[s]
        and state.home[s] == start.home[s]
        and state.first[s] == start.first[s]
        and state.num_blocks[s] == start.num_blocks[s]
        and state.num_full[s] == start.num_full[s]
        and state.num_filled[s] == start.num_filled[s]
        and state.done_full[s] == start.done_full[s]
        and state.done_filled[s] == start.done_filled[s]
        for s in SEQS
    )
