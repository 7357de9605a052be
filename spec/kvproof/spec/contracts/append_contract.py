"""What appending tokens does, for every size: `append` entry by entry, until all tokens of the sequence are known.

What an append takes is told beforehand by the arithmetic of admission: one block for each entry that is missing, and
one to replace a shared tail. It takes exactly these, is refused nowhere on its way, and puts the token of position
index * BLOCK_SIZE + slot into that slot of that table entry. Evicting comes before: what is taken is free.

The position is a parameter, so what is proved holds of each position; the token numbered j that an append brings has
position `num_tokens_known + j`, which is entry position // BLOCK_SIZE and slot position % BLOCK_SIZE.
"""

from kvproof.spec.contracts.free_contract import other_tables_are_kept
from kvproof.spec.language import (
    BLOCK_SIZE,
    INDEXES,
    SLOTS,
    BlockId,
    Count,
    Index,
    Row,
    SeqId,
    Slot,
    Tokens,
    contract,
    implies,
    word,
)
from kvproof.spec.text.admission import blocks_for, entries_missing, num_tokens_known, tail_is_shared
from kvproof.spec.text.rules import append
from kvproof.spec.text.state import FREE, NONE, State, at_rest, free_in, has_entry, num_known


@word
def append_cost(state: State, seq: int, num_tokens: int) -> int:
    """Blocks taken until the sequence knows `num_tokens` tokens: missing entries, and a copy of a shared tail."""
    return entries_missing(state, seq, num_tokens - num_tokens_known(state, seq)) + (
        1 if num_tokens > num_tokens_known(state, seq) and tail_is_shared(state, seq) else 0
    )


@word
def reserved_entries_are_its_own(state: State, seq: int) -> bool:
    """No other sequence holds what lookahead has reserved beyond the tail."""
    return all(
        implies(state.num_full[seq] < i and i < state.num_blocks[seq], state.refcount[state.table[seq][i]] == 1)
        for i in INDEXES
    )


@word
def tail_to_copy_has_arrived(state: State, seq: int) -> bool:
    """A shared tail, which is copied before it is written, is not being filled by a transfer."""
    return implies(tail_is_shared(state, seq), state.filler[state.table[seq][state.num_full[seq]]] == NONE)


@word
def appending_starts(start: State, seq: SeqId, num_tokens: Count, tokens: Tokens, index: Index, slot: Slot) -> bool:
    """There is a free block for each that admission has counted."""
    return (
        at_rest(start, seq)
        and num_tokens >= num_tokens_known(start, seq)
        and append_cost(start, seq, num_tokens) <= start.count[start.home[seq]][FREE]
        and reserved_entries_are_its_own(start, seq)
        and tail_to_copy_has_arrived(start, seq)
    )


@word
def tokens_to_append(state: State, seq: SeqId, num_tokens: Count, tokens: Tokens, index: Index, slot: Slot) -> int:
    """How many tokens are not known yet."""
    return num_tokens - num_tokens_known(state, seq)


@word
def has_landed(state: State, seq: int, tokens: Tokens, index: int, slot: int) -> bool:
    """The token of that position is known in that slot of that entry, in a block that no other sequence holds."""
    return (
        has_entry(state, seq, index)
        and slot < num_known(state, seq, index)
        and state.tokens[seq][index][slot] == tokens[index * BLOCK_SIZE + slot]
        and state.refcount[state.table[seq][index]] == 1
    )


@word
def has_appended(start: State, state: State, seq: int) -> bool:
    """The sequence knows more tokens than at the start."""
    return state.num_full[seq] > start.num_full[seq] or state.num_filled[seq] > start.num_filled[seq]


@word
def appending_so_far(
    start: State, state: State, seq: SeqId, num_tokens: Count, tokens: Tokens, index: Index, slot: Slot
) -> bool:
    """As many blocks were taken as entries were added, and one for a shared tail; what is known has landed."""
    return (
        at_rest(state, seq)
        and state.home[seq] == start.home[seq]
        and state.first[seq] == start.first[seq]
        and state.num_full[seq] >= start.num_full[seq]
        and implies(state.num_full[seq] == start.num_full[seq], state.num_filled[seq] >= start.num_filled[seq])
        and num_tokens_known(state, seq) <= num_tokens
        and state.num_blocks[seq]
        == (
            start.num_blocks[seq]
            if state.num_full[seq] + (1 if state.num_filled[seq] > 0 else 0) <= start.num_blocks[seq]
            else state.num_full[seq] + (1 if state.num_filled[seq] > 0 else 0)
        )
        and start.count[start.home[seq]][FREE] - state.count[state.home[seq]][FREE]
        == state.num_blocks[seq]
        - start.num_blocks[seq]
        + (1 if has_appended(start, state, seq) and tail_is_shared(start, seq) else 0)
        and append_cost(start, seq, num_tokens) <= start.count[start.home[seq]][FREE]
        and tail_is_shared(state, seq) == (tail_is_shared(start, seq) and not has_appended(start, state, seq))
        and reserved_entries_are_its_own(state, seq)
        and tail_to_copy_has_arrived(state, seq)
        and implies(
            num_known(start, seq, index) <= slot and slot < num_known(state, seq, index),
            has_landed(state, seq, tokens, index, slot),
        )
        and other_tables_are_kept(start, state, seq)
    )


@word
def next_append(
    state: State,
    seq: SeqId,
    num_tokens: Count,
    tokens: Tokens,
    index: Index,
    slot: Slot,
    block: BlockId,
    row: Row,
    stop: Count,
) -> bool:
    """The next tokens, as many of one entry as one likes; in a free block unless the entry is there and not shared."""
    return (
        state.num_filled[seq] < stop
        and stop <= BLOCK_SIZE
        and state.num_full[seq] * BLOCK_SIZE + stop <= num_tokens
        and all(
            implies(state.num_filled[seq] <= o and o < stop, row[o] == tokens[state.num_full[seq] * BLOCK_SIZE + o])
            for o in SLOTS
        )
        and (
            block == state.table[seq][state.num_full[seq]]
            if state.num_full[seq] < state.num_blocks[seq] and not tail_is_shared(state, seq)
            else free_in(state, block, state.home[seq])
        )
    )


@word
def a_block_to_append_to_is_free(
    state: State, seq: SeqId, num_tokens: Count, tokens: Tokens, index: Index, slot: Slot
) -> bool:
    """Where the next tokens need a block, there is a free one."""
    return (state.num_full[seq] < state.num_blocks[seq] and not tail_is_shared(state, seq)) or state.count[
        state.home[seq]
    ][FREE] > 0


@contract(
    "admission-sound",
    append,
    starts=appending_starts,
    left=tokens_to_append,
    so_far=appending_so_far,
    choice=next_append,
    can_choose=a_block_to_append_to_is_free,
)
@word
def append_takes_what_admission_said(
    start: State, state: State, seq: SeqId, num_tokens: Count, tokens: Tokens, index: Index, slot: Slot
) -> bool:
    """An append takes exactly the blocks that admission has counted, and each token lands in its slot."""
    return (
        num_tokens_known(state, seq) == num_tokens
        and start.count[start.home[seq]][FREE] - state.count[start.home[seq]][FREE]
        == append_cost(start, seq, num_tokens)
        and state.num_blocks[seq] >= blocks_for(num_tokens)
        and implies(
            num_tokens_known(start, seq) <= index * BLOCK_SIZE + slot and index * BLOCK_SIZE + slot < num_tokens,
            has_landed(state, seq, tokens, index, slot),
        )
        and other_tables_are_kept(start, state, seq)
    )
