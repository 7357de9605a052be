"""How far the admission of a prompt has come: what it was given, and what holds after any number of its firings.

The prompt is cut into rows, one for each table entry: `num_rows` full ones, and `num_tail` tokens in the next. The
first `num_hit` entries are hits, entry i in block `found[i]`; then come new blocks, in the end reserved ones, up to
`num_entries` entries. Hits on evictable blocks wake them: from entry i on there are `num_woken[i]` such hits. Evictions
come at any time after the hits, of any block; `num_spared` blocks are evictable still when all is done.

Two full rows of a prompt begin with different identities, for an identity fixes its position (`identity`).
"""

from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    FLIGHTS,
    INDEXES,
    NUM_BLOCKS,
    SEQS,
    SLOTS,
    EntryNumbers,
    Rows,
    implies,
    same,
    word,
)
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, USED, State, has_entry, holds, num_known, pool_of, unused_in


@word
def prompt_is_found(start: State, rows: Rows, num_hit: int, found: EntryNumbers) -> bool:
    """Each hit is on a computed block of the GPU that has the content of its row."""
    return all(
        implies(
            i < num_hit,
            0 <= found[i]
            and found[i] < NUM_BLOCKS
            and pool_of(found[i]) == GPU
            and start.computed[found[i]]
            and start.content[found[i]][0] == rows[i][0]
            and same(start.content[found[i]], rows[i], BLOCK_SIZE),
        )
        for i in INDEXES
    )


@word
def rows_are_told_apart(rows: Rows, num_hit: int) -> bool:
    """No two of the rows that are hit begin with the same identity."""
    return all(
        implies(i < num_hit and j < num_hit and rows[i][0] == rows[j][0], i == j) for i in INDEXES for j in INDEXES
    )


@word
def hits_are_told_apart(num_hit: int, found: EntryNumbers) -> bool:
    """No block is hit twice."""
    return all(implies(i < num_hit and j < num_hit and found[i] == found[j], i == j) for i in INDEXES for j in INDEXES)


@word
def woken_are_counted(start: State, num_hit: int, found: EntryNumbers, num_woken: EntryNumbers) -> bool:
    """From each entry on as many blocks are woken as hits from there on are on evictable blocks."""
    return all(num_woken[i] >= 0 and implies(num_hit <= i, num_woken[i] == 0) for i in INDEXES) and all(
        implies(
            i < num_hit and n == i + 1,
            num_woken[i] == num_woken[n] + (1 if start.status[found[i]] == EVICTABLE else 0),
        )
        for i in INDEXES
        for n in INDEXES
    )


@word
def num_new(num_entries: int, num_hit: int) -> int:
    """How many of so many entries are no hits: each takes a new block."""
    return num_entries - num_hit if num_entries > num_hit else 0


@word
def evictions_left(state: State, seq: int, num_woken: EntryNumbers, num_spared: int) -> int:
    """How many blocks are still to be evicted."""
    return state.count[GPU][EVICTABLE] - num_woken[state.num_blocks[seq]] - num_spared


@word
def lengths_so_far(state: State, seq: int, num_rows: int, num_tail: int, num_entries: int, num_hit: int) -> bool:
    """Rows become known one by one, in full, then the tail; what was hit may be read."""
    return (
        state.num_blocks[seq] <= num_entries
        and state.first[seq] == 0
        and state.num_full[seq] == (state.num_blocks[seq] if state.num_blocks[seq] < num_rows else num_rows)
        and state.num_filled[seq] == (num_tail if state.num_blocks[seq] > num_rows else 0)
        and state.done_full[seq] == (state.num_blocks[seq] if state.num_blocks[seq] < num_hit else num_hit)
        and state.done_filled[seq] == 0
    )


@word
def entries_so_far(start: State, state: State, seq: int, num_hit: int, found: EntryNumbers) -> bool:
    """A hit is where it was found, every other entry in a block of the GPU that was free or evictable."""
    return all(
        implies(
            i < state.num_blocks[seq],
            state.table[seq][i] == found[i]
            if i < num_hit
            else start.status[state.table[seq][i]] == FREE or start.status[state.table[seq][i]] == EVICTABLE,
        )
        for i in INDEXES
    )


@word
def prompt_so_far(state: State, seq: int, rows: Rows) -> bool:
    """What is known of an entry is its row."""
    return all(
        implies(i < state.num_blocks[seq] and o < num_known(state, seq, i), state.tokens[seq][i][o] == rows[i][o])
        for i in INDEXES
        for o in SLOTS
    )


@word
def unused_so_far(start: State, state: State, seq: int, num_hit: int, num_woken: EntryNumbers, num_spared: int) -> bool:
    """Unused blocks have become fewer by those woken, and by one for each new entry; none was evicted before."""
    return (
        unused_in(start, GPU) - unused_in(state, GPU)
        == num_woken[0] - num_woken[state.num_blocks[seq]] + num_new(state.num_blocks[seq], num_hit)
        and evictions_left(state, seq, num_woken, num_spared) >= 0
        and evictions_left(state, seq, num_woken, num_spared) <= start.count[GPU][EVICTABLE] - num_woken[0] - num_spared
    )


@word
def is_new(state: State, seq: int, block: int, num_hit: int) -> bool:
    """The block is one that the prompt has taken, and not hit."""
    return holds(state, seq, block) and state.position[seq][block] >= num_hit


@word
def statuses_so_far(start: State, state: State, seq: int, num_hit: int) -> bool:
    """What the prompt does not hold is in its list of before; after the hits, what was evictable may be free."""
    return all(
        implies(
            not holds(state, seq, b),
            state.status[b] == start.status[b]
            or (start.status[b] == EVICTABLE and state.status[b] == FREE and state.num_blocks[seq] >= num_hit),
        )
        for b in BLOCKS
    )


@word
def references_so_far(start: State, state: State, seq: int) -> bool:
    """Every block has the references that it had, and one more if the prompt holds it; nothing flies elsewhere."""
    return (
        all(state.refcount[b] == start.refcount[b] + (1 if holds(state, seq, b) else 0) for b in BLOCKS)
        and all(state.pins[b] == start.pins[b] and state.filler[b] == start.filler[b] for b in BLOCKS)
        and all(
            state.uses[f] == start.uses[f] and state.fills[f] == start.fills[f] and state.brings[f] == start.brings[f]
            for f in FLIGHTS
        )
    )


@word
def cache_so_far(start: State, state: State, seq: int, num_hit: int) -> bool:
    """What is neither new nor evicted is cached, and may be hit, as it was."""
    return all(
        implies(
            not is_new(state, seq, b, num_hit) and (state.status[b] == start.status[b] or state.status[b] == USED),
            state.computed[b] == start.computed[b]
            and state.cached[b] == start.cached[b]
            and state.num_written[b] == start.num_written[b],
        )
        for b in BLOCKS
    ) and all(
        implies(not is_new(state, seq, b, num_hit), state.content[b][o] == start.content[b][o])
        for b in BLOCKS
        for o in SLOTS
    )


@word
def contents_so_far(start: State, state: State, seq: int) -> bool:
    """No KV is written, and every other sequence knows what it knew."""
    return (
        all(state.memory[b][o] == start.memory[b][o] for b in BLOCKS for o in SLOTS)
        and all(
            implies(s != seq, state.tokens[s][i][o] == start.tokens[s][i][o])
            for s in SEQS
            for i in INDEXES
            for o in SLOTS
        )
        and all(
            implies(
                s != seq,
                state.num_full[s] == start.num_full[s]
                and state.num_filled[s] == start.num_filled[s]
                and state.done_full[s] == start.done_full[s]
                and state.done_filled[s] == start.done_filled[s],
            )
            for s in SEQS
        )
    )


@word
def promotions_so_far(state: State, seq: int, num_hit: int, caching: int) -> bool:
    """With a cache, each new full entry is cached, the last one perhaps not yet; without, none is."""
    return all(
        implies(
            num_hit <= i and i < state.num_full[seq],
            state.cached[state.table[seq][i]] if i + 1 < state.num_blocks[seq] and caching == 1 else True,
        )
        for i in INDEXES
    ) and all(
        implies(num_hit <= i and i < state.num_blocks[seq] and caching == 0, not state.cached[state.table[seq][i]])
        for i in INDEXES
    )


@word
def awaits_promotion(state: State, seq: int, num_hit: int, caching: int) -> bool:
    """The last entry is new and full, and is to be cached first."""
    return (
        caching == 1
        and num_hit < state.num_blocks[seq]
        and has_entry(state, seq, state.num_blocks[seq] - 1)
        and state.num_full[seq] == state.num_blocks[seq]
        and not state.cached[state.table[seq][state.num_blocks[seq] - 1]]
    )
