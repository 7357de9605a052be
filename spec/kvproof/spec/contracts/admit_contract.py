"""What the admission of a prompt does, for every size: `admit`, hits, new blocks and their promotions, reserved ones.

What it takes is told beforehand by the arithmetic of admission: one block for each entry that is no hit, and the
evictable blocks that are hit. When that answers OK the whole program is enabled to its end, evictions included: it
takes exactly these blocks, frees none that is used, and leaves every other sequence as it was. `admit_progress` says
what the maps mean.
"""

from kvproof.spec.contracts.admit_progress import (
    awaits_promotion,
    cache_so_far,
    contents_so_far,
    entries_so_far,
    evictions_left,
    hits_are_told_apart,
    lengths_so_far,
    num_new,
    promotions_so_far,
    prompt_is_found,
    prompt_so_far,
    references_so_far,
    rows_are_told_apart,
    statuses_so_far,
    unused_so_far,
    woken_are_counted,
)
from kvproof.spec.contracts.free_contract import other_tables_are_kept
from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    INDEXES,
    SLOTS,
    BlockId,
    Count,
    EntryNumbers,
    Flag,
    Index,
    Row,
    Rows,
    SeqId,
    Slot,
    contract,
    implies,
    same,
    word,
)
from kvproof.spec.text.admission import may_answer_ok, num_tokens_done, num_tokens_known
from kvproof.spec.text.cache_rules import evict, hit, promote
from kvproof.spec.text.rules import admit, append, reserve
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, USED, State, at_rest, free_in, num_known, pool_of, unused_in


@word
def admission_cost(num_entries: int, num_hit: int, num_woken: EntryNumbers) -> int:
    """Unused blocks that a prompt takes: one for each entry that is no hit, and those that its hits wake."""
    return num_new(num_entries, num_hit) + num_woken[0]


@word
def admitting_starts(
    start: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
) -> bool:
    """Admission says OK; as many blocks will be evicted as free ones are missing, or more."""
    return (
        not start.live[seq]
        and num_hit <= num_rows
        and num_rows + (1 if num_tail > 0 else 0) <= num_entries
        and prompt_is_found(start, rows, num_hit, found)
        and rows_are_told_apart(rows, num_hit)
        and woken_are_counted(start, num_hit, found, num_woken)
        and may_answer_ok(admission_cost(num_entries, num_hit, num_woken), unused_in(start, GPU), num_watermark)
        and num_woken[0] + num_spared <= start.count[GPU][EVICTABLE]
        and num_new(num_entries, num_hit)
        <= start.count[GPU][FREE] + start.count[GPU][EVICTABLE] - num_woken[0] - num_spared
    )


@word
def admission_left(
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
) -> int:
    """Firings that are left: entries, a promotion for each that is new and full, evictions, and the first of all."""
    return (
        (0 if state.live[seq] else 1)
        + 2 * (num_entries - state.num_blocks[seq])
        + (1 if awaits_promotion(state, seq, num_hit, caching) else 0)
        + evictions_left(state, seq, num_woken, num_spared)
    )


@word
def admitting_so_far(
    start: State,
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
) -> bool:
    """The first entries are there, what they hold is the prompt, and they took what they were to take."""
    return (
        admitting_starts(
            start,
            seq,
            rows,
            num_rows,
            num_tail,
            num_entries,
            num_hit,
            found,
            num_woken,
            num_spared,
            num_watermark,
            caching,
        )
        and hits_are_told_apart(num_hit, found)
        and implies(state.live[seq], at_rest(state, seq) and state.home[seq] == GPU)
        and lengths_so_far(state, seq, num_rows, num_tail, num_entries, num_hit)
        and entries_so_far(start, state, seq, num_hit, found)
        and prompt_so_far(state, seq, rows)
        and unused_so_far(start, state, seq, num_hit, num_woken, num_spared)
        and statuses_so_far(start, state, seq, num_hit)
        and references_so_far(start, state, seq)
        and cache_so_far(start, state, seq, num_hit)
        and contents_so_far(start, state, seq)
        and promotions_so_far(state, seq, num_hit, caching)
        and other_tables_are_kept(start, state, seq)
    )


@word
def is_created_first(
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
    window: Count,
) -> bool:
    """The sequence does not exist yet."""
    return not state.live[seq]


@word
def next_is_hit(
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
    block: BlockId,
    row: Row,
) -> bool:
    """The next entry is found."""
    return (
        state.live[seq]
        and state.num_blocks[seq] < num_hit
        and block == found[state.num_blocks[seq]]
        and same(row, rows[state.num_blocks[seq]], BLOCK_SIZE)
    )


@word
def next_is_new(
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
    block: BlockId,
    row: Row,
    stop: Count,
) -> bool:
    """The next entry knows tokens that were not found: as many as the prompt has there, in any free block."""
    return (
        state.live[seq]
        and num_hit <= state.num_blocks[seq]
        and stop == (BLOCK_SIZE if state.num_blocks[seq] < num_rows else num_tail)
        and state.num_blocks[seq] < num_rows + (1 if num_tail > 0 else 0)
        and not awaits_promotion(state, seq, num_hit, caching)
        and same(row, rows[state.num_blocks[seq]], stop)
        and free_in(state, block, GPU)
    )


@word
def next_is_reserved(
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
    block: BlockId,
) -> bool:
    """The whole prompt is known, and the next entry is for lookahead."""
    return (
        state.live[seq]
        and num_rows + (1 if num_tail > 0 else 0) <= state.num_blocks[seq]
        and state.num_blocks[seq] < num_entries
        and not awaits_promotion(state, seq, num_hit, caching)
        and free_in(state, block, GPU)
    )


@word
def last_is_promoted(
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
    index: Index,
) -> bool:
    """The last entry is new and full, and not cached yet."""
    return awaits_promotion(state, seq, num_hit, caching) and index == state.num_blocks[seq] - 1


@word
def one_is_evicted(
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
    block: BlockId,
) -> bool:
    """The hits are done, and a block is to be evicted: any of the GPU that is evictable."""
    return (
        state.live[seq]
        and num_hit <= state.num_blocks[seq]
        and evictions_left(state, seq, num_woken, num_spared) > 0
        and state.status[block] == EVICTABLE
        and pool_of(block) == GPU
    )


@word
def admission_goes_on(
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
) -> bool:
    """A block is hit, or promoted, or free where one is taken next, or there is one to evict."""
    return (
        not state.live[seq]
        or state.num_blocks[seq] < num_hit
        or awaits_promotion(state, seq, num_hit, caching)
        or (state.num_blocks[seq] < num_entries and state.count[GPU][FREE] > 0)
        or (evictions_left(state, seq, num_woken, num_spared) > 0 and state.count[GPU][EVICTABLE] > 0)
    )


@contract(
    "admission-sound",
    admit,
    starts=admitting_starts,
    left=admission_left,
    so_far=admitting_so_far,
    choice=is_created_first,
    can_choose=admission_goes_on,
    others={
        hit: next_is_hit,
        append: next_is_new,
        reserve: next_is_reserved,
        promote: last_is_promoted,
        evict: one_is_evicted,
    },
)
@word
def an_admitted_prompt_takes_what_admission_said(
    start: State,
    state: State,
    seq: SeqId,
    rows: Rows,
    num_rows: Count,
    num_tail: Slot,
    num_entries: Count,
    num_hit: Count,
    found: EntryNumbers,
    num_woken: EntryNumbers,
    num_spared: Count,
    num_watermark: Count,
    caching: Flag,
) -> bool:
    """A prompt takes one new block for each entry that is no hit, frees none, and what it hits holds its own KV."""
    return (
        at_rest(state, seq)
        and state.num_blocks[seq] == num_entries
        and num_tokens_known(state, seq) == num_rows * BLOCK_SIZE + num_tail
        and num_tokens_done(state, seq) == num_hit * BLOCK_SIZE
        and unused_in(start, GPU) - unused_in(state, GPU) == num_entries - num_hit + num_woken[0]
        and num_watermark <= unused_in(state, GPU)
        and all(
            implies(
                i < num_hit and o < BLOCK_SIZE,
                state.table[seq][i] == found[i] and state.memory[state.table[seq][i]][o] == rows[i][o],
            )
            for i in INDEXES
            for o in SLOTS
        )
        and all(
            implies(
                num_hit <= i and i < num_entries,
                state.refcount[state.table[seq][i]] == 1 and start.status[state.table[seq][i]] != USED,
            )
            for i in INDEXES
        )
        and all(
            implies(i < num_entries and o < num_known(state, seq, i), state.tokens[seq][i][o] == rows[i][o])
            for i in INDEXES
            for o in SLOTS
        )
        and all(
            implies(caching == 1 and num_hit <= i and i < num_rows, state.cached[state.table[seq][i]]) for i in INDEXES
        )
        and all(implies(start.status[b] == USED, state.status[b] == USED) for b in BLOCKS)
        and contents_so_far(start, state, seq)
        and other_tables_are_kept(start, state, seq)
    )
