"""Which cells of a state have a meaning, in the language of the text.

A cell without a meaning is one that every rule writes before any rule or operation reads it, and whose value changes
no claim: a slot whose token is not known, an entry that a table does not have, the home of a sequence that does not
exist. States that differ only in such cells are the same. A field has a function here that has its name; each cell of
any other field has a meaning. What claims say of every sequence, live or not, is a meaning: of a home, that it is a
pool. Tests fire rules on states with such cells set to other values, and compare; and they ask every claim of states
with any cell set to another value, before and after the cells without a meaning are cleared.
"""

from kvproof.spec.text.state import GPU, HOST, NONE, State, num_known


def home(state: State, seq: int) -> bool:
    """The sequence exists, or its home is no pool."""
    return state.live[seq] or not (state.home[seq] == GPU or state.home[seq] == HOST)


def window(state: State, seq: int) -> bool:
    """The sequence exists, or has entries that the window left."""
    return state.live[seq] or state.first[seq] > 0


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
