"""The contract of an append: `append`, entry by entry, until all tokens of the sequence are known.

The arithmetic of admission computes the cost in advance: one block for each missing entry, and one to replace a shared
tail. The append takes exactly these blocks, no rule refuses on the way, and the token of position
index * BLOCK_SIZE + slot is put into that slot of that table entry. Evictions come before.

The position is a parameter, so the proof holds for each position. The token numbered j that an append brings has
position `num_tokens_known + j`, which is entry position // BLOCK_SIZE and slot position % BLOCK_SIZE.
"""

from dataclasses import dataclass

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
    function,
    implies,
    predicate,
)
from kvproof.spec.text.admission import blocks_for, entries_missing, num_tokens_known, tail_is_shared
from kvproof.spec.text.rules import append
from kvproof.spec.text.state import FREE, NONE, State, at_rest, first_of_list, free_in, has_entry, num_known


@dataclass(frozen=True)
class Append:
    """What an append is given, and one position of the sequence."""

    seq: SeqId
    num_tokens: Count  # tokens of the sequence in the end
    token_ids: Tokens  # the identity of each position
    index: Index  # the position, as a table entry
    slot: Slot  # and a slot of it


@function
def append_cost(state: State, seq: int, num_tokens: int) -> int:
    """Blocks taken until the sequence knows `num_tokens` tokens: missing entries, and a copy of a shared tail."""
    return entries_missing(state, seq, num_tokens - num_tokens_known(state, seq)) + (
        1 if num_tokens > num_tokens_known(state, seq) and tail_is_shared(state, seq) else 0
    )


@predicate
def reserved_entries_are_its_own(state: State, seq: int) -> bool:
    """No other sequence holds an entry that lookahead has reserved beyond the tail."""
    return all(
        implies(state.num_full[seq] < i and i < state.num_blocks[seq], state.refcount[state.table[seq][i]] == 1)
        for i in INDEXES
    )


@predicate
def tail_to_copy_has_arrived(state: State, seq: int) -> bool:
    """No transfer fills a shared tail, which is copied before it is written."""
    return implies(tail_is_shared(state, seq), state.filler[state.table[seq][state.num_full[seq]]] == NONE)


@predicate
def append_precondition(start: State, given: Append) -> bool:
    """There are as many free blocks as admission has counted."""
    return (
        at_rest(start, given.seq)
        and given.num_tokens >= num_tokens_known(start, given.seq)
        and append_cost(start, given.seq, given.num_tokens) <= start.count[start.home[given.seq]][FREE]
        and reserved_entries_are_its_own(start, given.seq)
        and tail_to_copy_has_arrived(start, given.seq)
    )


@function
def append_variant(state: State, given: Append) -> int:
    """The tokens that are not known yet."""
    return given.num_tokens - num_tokens_known(state, given.seq)


@predicate
def has_landed(state: State, given: Append) -> bool:
    """The token of the position is known in its slot of its entry, in a block that no other sequence holds."""
    return (
        has_entry(state, given.seq, given.index)
        and given.slot < num_known(state, given.seq, given.index)
        and state.tokens[given.seq][given.index][given.slot] == given.token_ids[given.index * BLOCK_SIZE + given.slot]
        and state.refcount[state.table[given.seq][given.index]] == 1
    )


@predicate
def has_appended(start: State, state: State, seq: int) -> bool:
    """The sequence knows more tokens than at the start."""
    return state.num_full[seq] > start.num_full[seq] or state.num_filled[seq] > start.num_filled[seq]


@predicate
def append_invariant(start: State, state: State, given: Append) -> bool:
    """Each new entry took one block, and a shared tail one more; the known tokens are in their slots."""
    return (
        at_rest(state, given.seq)
        and state.home[given.seq] == start.home[given.seq]
        and state.first[given.seq] == start.first[given.seq]
        and state.num_full[given.seq] >= start.num_full[given.seq]
        and implies(
            state.num_full[given.seq] == start.num_full[given.seq],
            state.num_filled[given.seq] >= start.num_filled[given.seq],
        )
        and num_tokens_known(state, given.seq) <= given.num_tokens
        and state.num_blocks[given.seq]
        == (
            start.num_blocks[given.seq]
            if state.num_full[given.seq] + (1 if state.num_filled[given.seq] > 0 else 0) <= start.num_blocks[given.seq]
            else state.num_full[given.seq] + (1 if state.num_filled[given.seq] > 0 else 0)
        )
        and start.count[start.home[given.seq]][FREE] - state.count[state.home[given.seq]][FREE]
        == state.num_blocks[given.seq]
        - start.num_blocks[given.seq]
        + (1 if has_appended(start, state, given.seq) and tail_is_shared(start, given.seq) else 0)
        and append_cost(start, given.seq, given.num_tokens) <= start.count[start.home[given.seq]][FREE]
        and tail_is_shared(state, given.seq)
        == (tail_is_shared(start, given.seq) and not has_appended(start, state, given.seq))
        and reserved_entries_are_its_own(state, given.seq)
        and tail_to_copy_has_arrived(state, given.seq)
        and implies(
            num_known(start, given.seq, given.index) <= given.slot
            and given.slot < num_known(state, given.seq, given.index),
            has_landed(state, given),
        )
        and other_tables_are_kept(start, state, given.seq)
    )


@predicate
def next_append(state: State, given: Append, block: BlockId, row: Row, stop: Count) -> bool:
    """Any number of the next tokens of one entry; in a free block unless the entry exists and is not shared."""
    return (
        state.num_filled[given.seq] < stop
        and stop <= BLOCK_SIZE
        and state.num_full[given.seq] * BLOCK_SIZE + stop <= given.num_tokens
        and all(
            implies(
                state.num_filled[given.seq] <= o and o < stop,
                row[o] == given.token_ids[state.num_full[given.seq] * BLOCK_SIZE + o],
            )
            for o in SLOTS
        )
        and (
            block == state.table[given.seq][state.num_full[given.seq]]
            if state.num_full[given.seq] < state.num_blocks[given.seq] and not tail_is_shared(state, given.seq)
            else free_in(state, block, state.home[given.seq])
        )
    )


@predicate
def a_block_to_append_to_is_free(state: State, given: Append) -> bool:
    """If the next tokens need a block, there is a free one."""
    return (
        state.num_full[given.seq] < state.num_blocks[given.seq] and not tail_is_shared(state, given.seq)
    ) or state.count[state.home[given.seq]][FREE] > 0


@function
def block_to_append_to(state: State, given: Append) -> int:
    """The block of the entry that the next tokens are in, if that is the sequence's own; else a free one."""
    return (
        state.table[given.seq][state.num_full[given.seq]]
        if state.num_full[given.seq] < state.num_blocks[given.seq] and not tail_is_shared(state, given.seq)
        else first_of_list(state, state.home[given.seq], FREE)
    )


@function
def row_to_append(state: State, given: Append) -> Row:
    """The identities of the entry that the next tokens are in."""
    return [given.token_ids[state.num_full[given.seq] * BLOCK_SIZE + o] for o in SLOTS]


@function
def stop_to_append(state: State, given: Append) -> int:
    """All tokens that are left, as far as the entry has room for them."""
    return min(BLOCK_SIZE, given.num_tokens - state.num_full[given.seq] * BLOCK_SIZE)


@contract(
    "admission-sound",
    append,
    precondition=append_precondition,
    variant=append_variant,
    loop_invariant=append_invariant,
    choice=next_append,
    can_choose=a_block_to_append_to_is_free,
    witnesses={append: {"block": block_to_append_to, "row": row_to_append, "stop": stop_to_append}},
)
@predicate
def append_takes_what_admission_said(start: State, state: State, given: Append) -> bool:
    """An append takes exactly the blocks that admission has counted, and each token lands in its slot."""
    return (
        num_tokens_known(state, given.seq) == given.num_tokens
        and start.count[start.home[given.seq]][FREE] - state.count[start.home[given.seq]][FREE]
        == append_cost(start, given.seq, given.num_tokens)
        and state.num_blocks[given.seq] >= blocks_for(given.num_tokens)
        and implies(
            num_tokens_known(start, given.seq) <= given.index * BLOCK_SIZE + given.slot
            and given.index * BLOCK_SIZE + given.slot < given.num_tokens,
            has_landed(state, given),
        )
        and other_tables_are_kept(start, state, given.seq)
    )
