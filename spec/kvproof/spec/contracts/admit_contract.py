"""The contract of an admission: `admit`, then hits, new blocks and their promotions, and reserved entries.

The arithmetic of admission computes the cost in advance: one block for each entry that is no hit, and each evictable
block that is hit. If admission answers OK, the whole program is enabled to its end, evictions included. It takes
exactly these blocks, frees no used block, and does not change other sequences. `admit_progress` has the loop invariant.
"""

from kvproof.spec.contracts.admit_progress import (
    Prompt,
    awaits_promotion,
    cache_so_far,
    contents_so_far,
    entries_so_far,
    evictions_left,
    hits_are_distinct,
    lengths_so_far,
    num_new,
    promotions_so_far,
    prompt_is_found,
    prompt_so_far,
    references_so_far,
    rows_are_distinct,
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
    Index,
    Row,
    contract,
    function,
    implies,
    predicate,
    same,
)
from kvproof.spec.text.admission import may_answer_ok, num_tokens_done, num_tokens_known
from kvproof.spec.text.cache_rules import evict, hit, promote
from kvproof.spec.text.rules import admit, append, reserve
from kvproof.spec.text.state import (
    EVICTABLE,
    FREE,
    GPU,
    USED,
    State,
    at_rest,
    first_of_list,
    free_in,
    num_known,
    pool_of,
    unused_in,
)


@function
def admission_cost(prompt: Prompt) -> int:
    """Unused blocks that a prompt takes: one for each entry that is no hit, and each block that a hit wakes."""
    return num_new(prompt.num_entries, prompt.num_hit) + prompt.num_woken[0]


@predicate
def admission_precondition(start: State, prompt: Prompt) -> bool:
    """Admission answers OK, and the planned evictions free at least as many blocks as are missing."""
    return (
        not start.live[prompt.seq]
        and prompt.num_hit <= prompt.num_rows
        and prompt.num_rows + (1 if prompt.num_tail > 0 else 0) <= prompt.num_entries
        and prompt_is_found(start, prompt)
        and rows_are_distinct(prompt)
        and woken_are_counted(start, prompt)
        and may_answer_ok(admission_cost(prompt), unused_in(start, GPU), prompt.num_watermark)
        and prompt.num_woken[0] + prompt.num_spared <= start.count[GPU][EVICTABLE]
        and num_new(prompt.num_entries, prompt.num_hit)
        <= start.count[GPU][FREE] + start.count[GPU][EVICTABLE] - prompt.num_woken[0] - prompt.num_spared
    )


@function
def admission_variant(state: State, prompt: Prompt) -> int:
    """The firings left: the first one, one for each entry, one for each promotion, and the evictions."""
    return (
        (0 if state.live[prompt.seq] else 1)
        + 2 * (prompt.num_entries - state.num_blocks[prompt.seq])
        + (1 if awaits_promotion(state, prompt) else 0)
        + evictions_left(state, prompt)
    )


@predicate
def admission_invariant(start: State, state: State, prompt: Prompt) -> bool:
    """The first entries are in the table and hold the prompt, at the cost that was computed."""
    return (
        admission_precondition(start, prompt)
        and hits_are_distinct(prompt)
        and implies(state.live[prompt.seq], at_rest(state, prompt.seq) and state.home[prompt.seq] == GPU)
        and lengths_so_far(state, prompt)
        and entries_so_far(start, state, prompt)
        and prompt_so_far(state, prompt)
        and unused_so_far(start, state, prompt)
        and statuses_so_far(start, state, prompt)
        and references_so_far(start, state, prompt.seq)
        and cache_so_far(start, state, prompt)
        and contents_so_far(start, state, prompt.seq)
        and promotions_so_far(state, prompt)
        and other_tables_are_kept(start, state, prompt.seq)
    )


@predicate
def is_not_created(state: State, prompt: Prompt) -> bool:
    """The sequence does not exist yet."""
    return not state.live[prompt.seq]


@predicate
def next_is_hit(state: State, prompt: Prompt, block: BlockId, row: Row) -> bool:
    """The next entry is a cache hit."""
    return (
        state.live[prompt.seq]
        and state.num_blocks[prompt.seq] < prompt.num_hit
        and block == prompt.found[state.num_blocks[prompt.seq]]
        and same(row, prompt.rows[state.num_blocks[prompt.seq]], BLOCK_SIZE)
    )


@predicate
def next_is_new(state: State, prompt: Prompt, block: BlockId, row: Row, stop: Count) -> bool:
    """The next entry is no hit: it gets any free block, and knows all tokens of its row."""
    return (
        state.live[prompt.seq]
        and prompt.num_hit <= state.num_blocks[prompt.seq]
        and stop == (BLOCK_SIZE if state.num_blocks[prompt.seq] < prompt.num_rows else prompt.num_tail)
        and state.num_blocks[prompt.seq] < prompt.num_rows + (1 if prompt.num_tail > 0 else 0)
        and not awaits_promotion(state, prompt)
        and same(row, prompt.rows[state.num_blocks[prompt.seq]], stop)
        and free_in(state, block, GPU)
    )


@predicate
def next_is_reserved(state: State, prompt: Prompt, block: BlockId) -> bool:
    """The whole prompt is known, and the next entry is reserved for lookahead."""
    return (
        state.live[prompt.seq]
        and prompt.num_rows + (1 if prompt.num_tail > 0 else 0) <= state.num_blocks[prompt.seq]
        and state.num_blocks[prompt.seq] < prompt.num_entries
        and not awaits_promotion(state, prompt)
        and free_in(state, block, GPU)
    )


@predicate
def last_is_promoted(state: State, prompt: Prompt, index: Index) -> bool:
    """The last entry is new and full, and not cached yet."""
    return awaits_promotion(state, prompt) and index == state.num_blocks[prompt.seq] - 1


@predicate
def one_is_evicted(state: State, prompt: Prompt, block: BlockId) -> bool:
    """The hits are done, and evictions are left: any evictable GPU block may be evicted."""
    return (
        state.live[prompt.seq]
        and prompt.num_hit <= state.num_blocks[prompt.seq]
        and evictions_left(state, prompt) > 0
        and state.status[block] == EVICTABLE
        and pool_of(block) == GPU
    )


@predicate
def admission_can_continue(state: State, prompt: Prompt) -> bool:
    """The next entry is a hit, or waits for its promotion, or finds a free block; or a block can be evicted."""
    return (
        not state.live[prompt.seq]
        or state.num_blocks[prompt.seq] < prompt.num_hit
        or awaits_promotion(state, prompt)
        or (state.num_blocks[prompt.seq] < prompt.num_entries and state.count[GPU][FREE] > 0)
        or (evictions_left(state, prompt) > 0 and state.count[GPU][EVICTABLE] > 0)
    )


@function
def no_window() -> int:
    """The prompt may read back to its beginning."""
    return 0


@function
def block_found(state: State, prompt: Prompt) -> int:
    """The block that the next hit found."""
    return prompt.found[state.num_blocks[prompt.seq]]


@function
def next_row(state: State, prompt: Prompt) -> Row:
    """The identities of the next entry."""
    return prompt.rows[state.num_blocks[prompt.seq]]


@function
def next_stop(state: State, prompt: Prompt) -> int:
    """The tokens of the next entry."""
    return BLOCK_SIZE if state.num_blocks[prompt.seq] < prompt.num_rows else prompt.num_tail


@function
def last_entry(state: State, prompt: Prompt) -> int:
    """The last entry of the table."""
    return state.num_blocks[prompt.seq] - 1


@function
def a_free_block(state: State) -> int:
    """A free GPU block."""
    return first_of_list(state, GPU, FREE)


@function
def an_evictable_block(state: State) -> int:
    """An evictable GPU block."""
    return first_of_list(state, GPU, EVICTABLE)


@contract(
    "admission-sound",
    admit,
    precondition=admission_precondition,
    variant=admission_variant,
    loop_invariant=admission_invariant,
    choice=is_not_created,
    can_choose=admission_can_continue,
    others={
        hit: next_is_hit,
        append: next_is_new,
        reserve: next_is_reserved,
        promote: last_is_promoted,
        evict: one_is_evicted,
    },
    witnesses={
        admit: {"window": no_window},
        hit: {"block": block_found, "row": next_row},
        append: {"block": a_free_block, "row": next_row, "stop": next_stop},
        reserve: {"block": a_free_block},
        promote: {"index": last_entry},
        evict: {"block": an_evictable_block},
    },
)
@predicate
def an_admitted_prompt_takes_what_admission_said(start: State, state: State, prompt: Prompt) -> bool:
    """A prompt takes one new block for each entry that is no hit, frees none, and its hits hold its own KV."""
    return (
        at_rest(state, prompt.seq)
        and state.num_blocks[prompt.seq] == prompt.num_entries
        and num_tokens_known(state, prompt.seq) == prompt.num_rows * BLOCK_SIZE + prompt.num_tail
        and num_tokens_done(state, prompt.seq) == prompt.num_hit * BLOCK_SIZE
        and unused_in(start, GPU) - unused_in(state, GPU) == prompt.num_entries - prompt.num_hit + prompt.num_woken[0]
        and prompt.num_watermark <= unused_in(state, GPU)
        and all(
            implies(
                i < prompt.num_hit and o < BLOCK_SIZE,
                state.table[prompt.seq][i] == prompt.found[i]
                and state.memory[state.table[prompt.seq][i]][o] == prompt.rows[i][o],
            )
            for i in INDEXES
            for o in SLOTS
        )
        and all(
            implies(
                prompt.num_hit <= i and i < prompt.num_entries,
                state.refcount[state.table[prompt.seq][i]] == 1 and start.status[state.table[prompt.seq][i]] != USED,
            )
            for i in INDEXES
        )
        and all(
            implies(
                i < prompt.num_entries and o < num_known(state, prompt.seq, i),
                state.tokens[prompt.seq][i][o] == prompt.rows[i][o],
            )
            for i in INDEXES
            for o in SLOTS
        )
        and all(
            implies(
                prompt.caching == 1 and prompt.num_hit <= i and i < prompt.num_rows,
                state.cached[state.table[prompt.seq][i]],
            )
            for i in INDEXES
        )
        and all(implies(start.status[b] == USED, state.status[b] == USED) for b in BLOCKS)
        and contents_so_far(start, state, prompt.seq)
        and other_tables_are_kept(start, state, prompt.seq)
    )
