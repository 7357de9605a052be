"""What a swap of a group shall do, entry by entry, in whatever order: the words of its contracts.

The group is every sequence that has begun to be swapped out of `pool`. Its entries move one at a time, each table from
its front: the n-th firing moves the next entry of sequence `who[n]`, and before it sequence s is at `place[s][n]`. A
block that several of the group name moves once: with firing `first_step[b]`. `found[b]` says in which block of the
other pool its content is found; NONE where it is found in none, and is copied. So the blocks that the firings from the
n-th on take are a number that these maps determine, counted from the end: `num_to_take[n]`.

An identity fixes its position (`identity`), which rules do not ask for and a swap must: so entries that name one block
are at one place of their tables, and no two entries of one table are found in one block of the other pool.
"""

from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    INDEXES,
    NUM_BLOCKS,
    NUM_SEQS,
    SEQS,
    STEPS,
    BlockNumbers,
    Places,
    StepNumbers,
    implies,
    same,
    word,
)
from kvproof.spec.text.admission import may_answer_ok
from kvproof.spec.text.state import FREE, NONE, State, has_entry, holds, num_done, num_known, num_promised, pool_of


@word
def is_swapped(start: State, seq: int, pool: int) -> bool:
    """The sequence is one of the group."""
    return start.moving[seq] != NONE and start.home[seq] == pool


@word
def block_of_step(state: State, who: StepNumbers, place: Places, step: int) -> int:
    """The block that a firing moves from; in a later state, the one that it has moved to."""
    return state.table[who[step]][place[who[step]][step]]


@word
def entries_move_in_order(start: State, pool: int, num_steps: int, who: StepNumbers, place: Places) -> bool:
    """Each firing moves the next entry of a sequence of the group, until none is left."""
    return (
        all(
            implies(
                is_swapped(start, s, pool),
                place[s][0] == start.first[s] and place[s][num_steps] == start.num_blocks[s],
            )
            for s in SEQS
        )
        and all(
            implies(
                k < num_steps,
                0 <= who[k]
                and who[k] < NUM_SEQS
                and is_swapped(start, who[k], pool)
                and has_entry(start, who[k], place[who[k]][k]),
            )
            for k in STEPS
        )
        and all(
            implies(k < num_steps and n == k + 1, place[s][n] == place[s][k] + (1 if who[k] == s else 0))
            for s in SEQS
            for k in STEPS
            for n in STEPS
        )
    )


@word
def blocks_move_once(start: State, num_steps: int, who: StepNumbers, place: Places, first_step: BlockNumbers) -> bool:
    """The first firing that moves from a block is known, and every other comes later."""
    return all(
        implies(
            k < num_steps,
            0 <= first_step[block_of_step(start, who, place, k)]
            and first_step[block_of_step(start, who, place, k)] <= k
            and block_of_step(start, who, place, first_step[block_of_step(start, who, place, k)])
            == block_of_step(start, who, place, k),
        )
        for k in STEPS
    )


@word
def entries_are_told_apart(start: State, pool: int) -> bool:
    """Blocks in which two of the group begin with one identity are at one place of their tables."""
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


@word
def blocks_are_at_one_place(start: State, pool: int) -> bool:
    """Entries of the group that name one block are at one place of their tables: so it follows."""
    return all(
        implies(
            is_swapped(start, s, pool) and is_swapped(start, r, pool) and holds(start, s, b) and holds(start, r, b),
            start.position[s][b] == start.position[r][b],
        )
        for s in SEQS
        for r in SEQS
        for b in BLOCKS
    )


@word
def blocks_move_from_one_place(
    start: State, num_steps: int, who: StepNumbers, place: Places, first_step: BlockNumbers
) -> bool:
    """Every firing that moves from a block does so from where the first one did."""
    return all(
        implies(
            k < num_steps,
            place[who[first_step[block_of_step(start, who, place, k)]]][first_step[block_of_step(start, who, place, k)]]
            == place[who[k]][k],
        )
        for k in STEPS
    )


@word
def is_found(start: State, seq: int, index: int, twin: int, pool: int) -> bool:
    """The other pool has the content of the entry, written as far as the sequence may read it."""
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


@word
def twins_are_found(start: State, pool: int, found: BlockNumbers) -> bool:
    """What `found` names has the content, for every entry of that block."""
    return all(
        implies(
            is_swapped(start, s, pool) and has_entry(start, s, i) and found[start.table[s][i]] != NONE,
            is_found(start, s, i, found[start.table[s][i]], pool),
        )
        for s in SEQS
        for i in INDEXES
    ) and all(
        implies(
            found[b] != NONE,
            0 <= found[b]
            and found[b] < NUM_BLOCKS
            and pool_of(found[b]) == 1 - pool
            and start.status[found[b]] != FREE,
        )
        for b in BLOCKS
    )


@word
def are_found_in_one(found: BlockNumbers, block: int, other: int) -> bool:
    """The other pool has one block for the contents of both: they were computed apart, and are one from then on."""
    return found[block] != NONE and found[block] == found[other]


@word
def twins_are_told_apart(start: State, pool: int, found: BlockNumbers) -> bool:
    """No two blocks of one sequence are found in one: so it follows."""
    return all(
        implies(
            is_swapped(start, s, pool) and holds(start, s, b) and holds(start, s, c) and are_found_in_one(found, b, c),
            b == c,
        )
        for s in SEQS
        for b in BLOCKS
        for c in BLOCKS
    )


@word
def takes_a_block(
    start: State, who: StepNumbers, place: Places, first_step: BlockNumbers, found: BlockNumbers, step: int
) -> bool:
    """The firing is the first of its block, whose content is found nowhere."""
    return (
        first_step[block_of_step(start, who, place, step)] == step
        and found[block_of_step(start, who, place, step)] == NONE
    )


@word
def blocks_are_counted(
    start: State,
    num_steps: int,
    who: StepNumbers,
    place: Places,
    first_step: BlockNumbers,
    found: BlockNumbers,
    num_to_take: StepNumbers,
) -> bool:
    """From each firing on as many blocks are taken as firings from there on take one."""
    return (
        num_to_take[num_steps] == 0
        and all(num_to_take[k] >= 0 for k in STEPS)
        and all(
            implies(
                k < num_steps and n == k + 1,
                num_to_take[k] == num_to_take[n] + (1 if takes_a_block(start, who, place, first_step, found, k) else 0),
            )
            for k in STEPS
            for n in STEPS
        )
    )


@word
def nothing_has_moved(start: State, pool: int) -> bool:
    """The whole group is where it was, and what it holds has arrived there."""
    return all(
        implies(is_swapped(start, s, pool), start.live[s] and start.moving[s] == start.first[s]) for s in SEQS
    ) and all(
        implies(is_swapped(start, s, pool) and has_entry(start, s, i), start.filler[start.table[s][i]] == NONE)
        for s in SEQS
        for i in INDEXES
    )


@word
def swap_is_admitted(start: State, pool: int, num_to_take: StepNumbers) -> bool:
    """Admission says OK: the other pool has as many free blocks as all firings take."""
    return may_answer_ok(num_to_take[0], start.count[1 - pool][FREE], 0)


@word
def names_are_kept(start: State, state: State) -> bool:
    """What is no place of a sequence is as it was."""
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
