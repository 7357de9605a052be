"""Freeing a sequence that is at rest asks for nothing else: `begin_free`, `drop_last` to the end, `finish`.

What the drops give back says `free_contract`; here is that the whole program is enabled in every state, up to a
sequence that does not exist any more.
"""

from kvproof.spec.contracts.free_contract import other_tables_are_kept
from kvproof.spec.language import BLOCKS, SeqId, contract, word
from kvproof.spec.text.rules import begin_free, drop_last, finish
from kvproof.spec.text.state import NONE, State, at_rest, holds


@word
def ending_starts(start: State, seq: SeqId) -> bool:
    """The sequence is at rest: it exists, and is neither being swapped nor freed."""
    return at_rest(start, seq)


@word
def ending_left(state: State, seq: SeqId) -> int:
    """An entry each, the beginning, and the end."""
    return state.num_blocks[seq] - state.first[seq] + (1 if state.ending[seq] else 2) if state.live[seq] else 0


@word
def ending_so_far(start: State, state: State, seq: SeqId) -> bool:
    """The sequence is live until it is finished, and is not swapped."""
    return (state.moving[seq] == NONE or not state.live[seq]) and other_tables_are_kept(start, state, seq)


@word
def it_begins(state: State, seq: SeqId) -> bool:
    """Nothing was dropped yet."""
    return state.live[seq] and not state.ending[seq]


@word
def one_is_dropped(state: State, seq: SeqId) -> bool:
    """An entry is left."""
    return state.live[seq] and state.ending[seq] and state.first[seq] < state.num_blocks[seq]


@word
def none_is_left(state: State, seq: SeqId) -> bool:
    """No entry is left."""
    return state.live[seq] and state.ending[seq] and state.first[seq] == state.num_blocks[seq]


@word
def it_goes_on(state: State, seq: SeqId) -> bool:
    """It begins, or drops an entry, or finishes."""
    return it_begins(state, seq) or one_is_dropped(state, seq) or none_is_left(state, seq)


@contract(
    "total-calls",
    begin_free,
    starts=ending_starts,
    left=ending_left,
    so_far=ending_so_far,
    choice=it_begins,
    can_choose=it_goes_on,
    others={drop_last: one_is_dropped, finish: none_is_left},
)
@word
def a_sequence_at_rest_can_be_freed(start: State, state: State, seq: SeqId) -> bool:
    """Freeing a sequence that is at rest is refused nowhere: it holds nothing then, others what they held."""
    return (
        not state.live[seq]
        and all(not holds(state, seq, b) for b in BLOCKS)
        and other_tables_are_kept(start, state, seq)
    )
