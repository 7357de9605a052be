"""The admission of a prompt: its parameters, and the parts of its loop invariant.

The prompt is cut into rows, one for each table entry: first the full rows, then a row for the tokens of the tail. The
first `num_hit` entries are cache hits. New blocks follow, and then the entries reserved for lookahead. A hit on an
evictable block wakes it: the block is used again. Evictions may happen at any time after the hits, and of any block.

Two full rows of a prompt begin with different identities, because an identity fixes its position (`identity`).
"""

from dataclasses import dataclass

from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    FLIGHTS,
    INDEXES,
    NUM_BLOCKS,
    SEQS,
    SLOTS,
    Count,
    EntryNumbers,
    Flag,
    Rows,
    SeqId,
    Slot,
    function,
    implies,
    predicate,
    same,
)
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, USED, State, has_entry, holds, num_known, pool_of, unused_in


@dataclass(frozen=True)
class Prompt:
    """What the admission of a prompt is given."""

    seq: SeqId
    rows: Rows  # the identities of each table entry
    num_rows: Count  # full rows
    num_tail: Slot  # tokens in the row after the full ones
    num_entries: Count  # table entries in the end, those reserved for lookahead included
    num_hit: Count  # the entries before this one are cache hits
    found: EntryNumbers  # the block that each hit found
    num_woken: EntryNumbers  # from each entry on, the number of hits on evictable blocks
    num_spared: Count  # blocks that are still evictable in the end
    num_watermark: Count
    caching: Flag


@predicate
def prompt_is_found(start: State, prompt: Prompt) -> bool:
    """Each hit is on a computed GPU block that has the content of its row."""
    return all(
        implies(
            i < prompt.num_hit,
            0 <= prompt.found[i]
            and prompt.found[i] < NUM_BLOCKS
            and pool_of(prompt.found[i]) == GPU
            and start.computed[prompt.found[i]]
            and start.content[prompt.found[i]][0] == prompt.rows[i][0]
            and same(start.content[prompt.found[i]], prompt.rows[i], BLOCK_SIZE),
        )
        for i in INDEXES
    )


@predicate
def rows_are_distinct(prompt: Prompt) -> bool:
    """No two of the rows that are hit begin with the same identity."""
    return all(
        implies(i < prompt.num_hit and j < prompt.num_hit and prompt.rows[i][0] == prompt.rows[j][0], i == j)
        for i in INDEXES
        for j in INDEXES
    )


@predicate
def hits_are_distinct(prompt: Prompt) -> bool:
    """No block is hit twice."""
    return all(
        implies(i < prompt.num_hit and j < prompt.num_hit and prompt.found[i] == prompt.found[j], i == j)
        for i in INDEXES
        for j in INDEXES
    )


@predicate
def woken_are_counted(start: State, prompt: Prompt) -> bool:
    """`num_woken` counts, from each entry on, the hits on evictable blocks."""
    return all(
        prompt.num_woken[i] >= 0 and implies(prompt.num_hit <= i, prompt.num_woken[i] == 0) for i in INDEXES
    ) and all(
        implies(
            i < prompt.num_hit and n == i + 1,
            prompt.num_woken[i] == prompt.num_woken[n] + (1 if start.status[prompt.found[i]] == EVICTABLE else 0),
        )
        for i in INDEXES
        for n in INDEXES
    )


@function
def num_new(num_entries: int, num_hit: int) -> int:
    """How many of the first `num_entries` entries are no hits: each takes a new block."""
    return num_entries - num_hit if num_entries > num_hit else 0


@function
def evictions_left(state: State, prompt: Prompt) -> int:
    """How many blocks are still to be evicted."""
    return state.count[GPU][EVICTABLE] - prompt.num_woken[state.num_blocks[prompt.seq]] - prompt.num_spared


@predicate
def lengths_so_far(state: State, prompt: Prompt) -> bool:
    """Rows become known one by one: the full rows, then the tail. The sequence may read the rows that were hit."""
    return (
        state.num_blocks[prompt.seq] <= prompt.num_entries
        and state.first[prompt.seq] == 0
        and state.num_full[prompt.seq]
        == (state.num_blocks[prompt.seq] if state.num_blocks[prompt.seq] < prompt.num_rows else prompt.num_rows)
        and state.num_filled[prompt.seq] == (prompt.num_tail if state.num_blocks[prompt.seq] > prompt.num_rows else 0)
        and state.done_full[prompt.seq]
        == (state.num_blocks[prompt.seq] if state.num_blocks[prompt.seq] < prompt.num_hit else prompt.num_hit)
        and state.done_filled[prompt.seq] == 0
    )


@predicate
def entries_so_far(start: State, state: State, prompt: Prompt) -> bool:
    """Each hit entry names the block that was found. Every other entry names a block that was free or evictable."""
    return all(
        implies(
            i < state.num_blocks[prompt.seq],
            state.table[prompt.seq][i] == prompt.found[i]
            if i < prompt.num_hit
            else start.status[state.table[prompt.seq][i]] == FREE
            or start.status[state.table[prompt.seq][i]] == EVICTABLE,
        )
        for i in INDEXES
    )


@predicate
def prompt_so_far(state: State, prompt: Prompt) -> bool:
    """The known tokens of an entry are those of its row."""
    return all(
        implies(
            i < state.num_blocks[prompt.seq] and o < num_known(state, prompt.seq, i),
            state.tokens[prompt.seq][i][o] == prompt.rows[i][o],
        )
        for i in INDEXES
        for o in SLOTS
    )


@predicate
def unused_so_far(start: State, state: State, prompt: Prompt) -> bool:
    """Each woken block and each new entry took one unused block. The evictions left are at most those planned."""
    return (
        unused_in(start, GPU) - unused_in(state, GPU)
        == prompt.num_woken[0]
        - prompt.num_woken[state.num_blocks[prompt.seq]]
        + num_new(state.num_blocks[prompt.seq], prompt.num_hit)
        and evictions_left(state, prompt) >= 0
        and evictions_left(state, prompt) <= start.count[GPU][EVICTABLE] - prompt.num_woken[0] - prompt.num_spared
    )


@predicate
def is_new(state: State, seq: int, block: int, num_hit: int) -> bool:
    """The prompt holds the block, and did not hit it."""
    return holds(state, seq, block) and state.position[seq][block] >= num_hit


@predicate
def statuses_so_far(start: State, state: State, prompt: Prompt) -> bool:
    """A block that the prompt does not hold kept its status; after the hits, an evictable one may have become free."""
    return all(
        implies(
            not holds(state, prompt.seq, b),
            state.status[b] == start.status[b]
            or (
                start.status[b] == EVICTABLE
                and state.status[b] == FREE
                and state.num_blocks[prompt.seq] >= prompt.num_hit
            ),
        )
        for b in BLOCKS
    )


@predicate
def references_so_far(start: State, state: State, seq: int) -> bool:
    """Each block that the prompt holds gained one reference; no other count, pin or flight changed."""
    return (
        all(state.refcount[b] == start.refcount[b] + (1 if holds(state, seq, b) else 0) for b in BLOCKS)
        and all(state.pins[b] == start.pins[b] and state.filler[b] == start.filler[b] for b in BLOCKS)
        and all(
            state.uses[f] == start.uses[f] and state.fills[f] == start.fills[f] and state.brings[f] == start.brings[f]
            for f in FLIGHTS
        )
    )


@predicate
def cache_so_far(start: State, state: State, prompt: Prompt) -> bool:
    """The cache entry of a block that is neither new nor evicted did not change."""
    return all(
        implies(
            not is_new(state, prompt.seq, b, prompt.num_hit)
            and (state.status[b] == start.status[b] or state.status[b] == USED),
            state.computed[b] == start.computed[b]
            and state.cached[b] == start.cached[b]
            and state.num_written[b] == start.num_written[b],
        )
        for b in BLOCKS
    ) and all(
        implies(not is_new(state, prompt.seq, b, prompt.num_hit), state.content[b][o] == start.content[b][o])
        for b in BLOCKS
        for o in SLOTS
    )


@predicate
def contents_so_far(start: State, state: State, seq: int) -> bool:
    """No KV was written, and the tokens and lengths of every other sequence did not change."""
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


@predicate
def promotions_so_far(state: State, prompt: Prompt) -> bool:
    """With caching, each new full entry is cached, except perhaps the last one. Without caching, no new entry is."""
    return all(
        implies(
            prompt.num_hit <= i and i < state.num_full[prompt.seq],
            state.cached[state.table[prompt.seq][i]]
            if i + 1 < state.num_blocks[prompt.seq] and prompt.caching == 1
            else True,
        )
        for i in INDEXES
    ) and all(
        implies(
            prompt.num_hit <= i and i < state.num_blocks[prompt.seq] and prompt.caching == 0,
            not state.cached[state.table[prompt.seq][i]],
        )
        for i in INDEXES
    )


@predicate
def awaits_promotion(state: State, prompt: Prompt) -> bool:
    """The last entry is new and full, and must be cached before the next firing."""
    return (
        prompt.caching == 1
        and prompt.num_hit < state.num_blocks[prompt.seq]
        and has_entry(state, prompt.seq, state.num_blocks[prompt.seq] - 1)
        and state.num_full[prompt.seq] == state.num_blocks[prompt.seq]
        and not state.cached[state.table[prompt.seq][state.num_blocks[prompt.seq] - 1]]
    )
