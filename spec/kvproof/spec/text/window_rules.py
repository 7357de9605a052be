"""The rules of the sliding window: a sequence leaves the entries that it no longer reads, or never takes them.

With a window, a token reads itself and the positions shortly before it; entries further back need no block. A prompt
whose beginning was computed for another sequence skips such entries: its table starts with NULL entries, and only the
last computed blocks, as far back as the window reaches, must be hit. Before these hits nothing could be read back, so
the sequence is admitted with the smallest window, one token, and its window is widened after the hits.
"""

from kvproof.spec.language import BLOCK_SIZE, INDEXES, NULL, Row, SeqId, Window, check, implies, require, rule, same
from kvproof.spec.text.state import State, at_rest, can_still_be_read, holds, is_within, num_done, num_known
from kvproof.spec.text.steps import know, lose


@rule
def slide(state: State, seq: SeqId) -> None:
    """The sliding window leaves the first entry; NULL takes its place."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    require(state.first[seq] < state.num_full[seq], "the first entry is full", "window-kept")
    require(not can_still_be_read(state, seq, state.first[seq]), "no later token reads the entry left", "window-kept")
    index = state.first[seq]
    block = state.table[seq][index]
    state.table[seq][index] = NULL
    state.first[seq] += 1
    lose(state, seq, block)
    check(state.first[seq] == index + 1 and not holds(state, seq, block), "window-kept")


@rule
def skip(state: State, seq: SeqId, row: Row) -> None:
    """Add an entry without a block: its tokens are known, and no later token reads their KV."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    index = state.num_blocks[seq]
    require(state.first[seq] == index, "every entry before was left", "window-kept")
    require(state.window[seq] == 1, "a token reads only itself so far", "window-kept")
    know(state, seq, index, row, BLOCK_SIZE)
    state.table[seq][index] = NULL
    state.num_blocks[seq] += 1
    state.first[seq] += 1
    state.done_full[seq] = index + 1
    check(state.first[seq] == index + 1 and state.num_blocks[seq] == index + 1, "window-kept")
    check(num_known(state, seq, index + 1) == 0 and num_done(state, seq, index + 1) == 0, "read-back")
    check(same(state.tokens[seq][index], row, BLOCK_SIZE), "read-back")


@rule
def widen(state: State, seq: SeqId, window: Window) -> None:
    """Let later tokens read back as far as `window`."""
    require(at_rest(state, seq), "the sequence is live and not being swapped")
    require(state.window[seq] == 1, "a token reads only itself so far", "window-kept")
    require(
        all(implies(i < state.first[seq], not is_within(state, seq, i, window)) for i in INDEXES),
        "no later token reads an entry that was left",
        "window-kept",
    )
    state.window[seq] = window
    check(state.window[seq] == window, "window-kept")
