"""Which cells of a state have a meaning, in the language of the text.

A cell without a meaning is one that every rule writes before any rule, claim or operation reads it: a slot whose token
is not known, an entry that a table does not have, a number of a sequence that does not exist. States that differ only
in such cells are the same. A field has a function here that has its name; each cell of any other field has a meaning.
Tests fire rules on states with such cells set to other values, and compare.
"""

from kvproof.spec.text.state import NONE, State, num_known


def home(state: State, seq: int) -> bool:
    """The sequence exists."""
    return state.live[seq]


def moving(state: State, seq: int) -> bool:
    """The sequence exists."""
    return state.live[seq]


def window(state: State, seq: int) -> bool:
    """The sequence exists."""
    return state.live[seq]


def table(state: State, seq: int, index: int) -> bool:
    """The table has the entry, or had it before the window left it."""
    return index < state.num_blocks[seq]


def tokens(state: State, seq: int, index: int, slot: int) -> bool:
    """The token is known, and read by a rule: the window has not left it, or the next token follows it."""
    return slot < num_known(state, seq, index) and (
        index >= state.first[seq] or (index + 1 == state.num_full[seq] and state.num_filled[seq] == 0)
    )


def content(state: State, block: int, slot: int) -> bool:
    """The block is cached."""
    return state.cached[block]


def memory(state: State, block: int, slot: int) -> bool:
    """The slot is written."""
    return slot < state.num_written[block]


def brings(state: State, flight: int) -> bool:
    """The flight is a transfer."""
    return state.fills[flight] != NONE
