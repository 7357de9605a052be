"""The contract of ending a sequence at rest: `begin_free`, `drop_last` for each entry, `finish`.

`free_contract` states which blocks the drops give back. This contract states that the whole program is enabled in every
state in which the sequence is at rest, until the sequence does not exist any more.
"""

from kvproof.spec.contracts.free_contract import other_tables_are_kept
from kvproof.spec.language import BLOCKS, SeqId, contract, function, predicate
from kvproof.spec.text.rules import begin_free, drop_last, finish
from kvproof.spec.text.state import NONE, State, at_rest, holds


@predicate
def end_precondition(start: State, seq: SeqId) -> bool:
    """The sequence is at rest: it is live, and neither being swapped nor freed."""
    return at_rest(start, seq)


@function
def end_variant(state: State, seq: SeqId) -> int:
    """The firings left: one for each entry, the first one, and the last one."""
    return state.num_blocks[seq] - state.first[seq] + (1 if state.ending[seq] else 2) if state.live[seq] else 0


@predicate
def end_invariant(start: State, state: State, seq: SeqId) -> bool:
    """The sequence is not swapped while it is live."""
    return (state.moving[seq] == NONE or not state.live[seq]) and other_tables_are_kept(start, state, seq)


@predicate
def freeing_begins(state: State, seq: SeqId) -> bool:
    """No entry has been dropped yet."""
    return state.live[seq] and not state.ending[seq]


@predicate
def one_is_dropped(state: State, seq: SeqId) -> bool:
    """An entry is left."""
    return state.live[seq] and state.ending[seq] and state.first[seq] < state.num_blocks[seq]


@predicate
def none_is_left(state: State, seq: SeqId) -> bool:
    """No entry is left."""
    return state.live[seq] and state.ending[seq] and state.first[seq] == state.num_blocks[seq]


@predicate
def freeing_can_continue(state: State, seq: SeqId) -> bool:
    """Freeing begins, or an entry is dropped, or the sequence is finished."""
    return freeing_begins(state, seq) or one_is_dropped(state, seq) or none_is_left(state, seq)


@contract(
    "total-calls",
    begin_free,
    precondition=end_precondition,
    variant=end_variant,
    loop_invariant=end_invariant,
    choice=freeing_begins,
    can_choose=freeing_can_continue,
    others={drop_last: one_is_dropped, finish: none_is_left},
)
@predicate
def a_sequence_at_rest_can_be_freed(start: State, state: State, seq: SeqId) -> bool:
    """Every sequence at rest can be freed: it holds nothing afterwards, and the other tables are unchanged."""
    return (
        not state.live[seq]
        and all(not holds(state, seq, b) for b in BLOCKS)
        and other_tables_are_kept(start, state, seq)
    )
