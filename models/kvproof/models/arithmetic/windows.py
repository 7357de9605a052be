"""The sliding window: a dropped block is never read again, and the number of held blocks is bounded.

Attention at position p reads the positions above p - window, up to p. Every later step is at a position of at least the
number of computed tokens; so a block may be dropped when its last position is at most that number minus the window.
"""

from collections.abc import Iterator

import z3

from kvproof.models.arithmetic.sources import BLOCK_SIZE, SIZES, Sources, Subject, non_negative
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.multiplication_lemma import by_lemma

WINDOW, COMPUTED, KNOWN, LOOKAHEAD, DROPPED = z3.Ints("window num_computed num_tokens num_lookahead_slots num_dropped")
POSITION, READER = z3.Ints("position reader")
A_WINDOW = Hypothesis("a window has a token", WINDOW >= 1)


def obligations(sources: Sources) -> Iterator[Obligation]:
    subject = Subject(
        "a sliding window",
        sources,
        "window-kept",
        SIZES,
        A_WINDOW,
        non_negative(COMPUTED, KNOWN, LOOKAHEAD, DROPPED),
    )
    most = subject.function("num_window_blocks", {"sliding_window": WINDOW, "block_size": BLOCK_SIZE})
    kept = subject.function(
        "Growth.first_kept",
        {
            "table": None,
            "seq": None,
            "self.max_block_sliding_window": most,
            "seq.data.get_num_computed_tokens()": COMPUTED,
            "self.block_size": BLOCK_SIZE,
            "table.num_dropped": DROPPED,
            "table.num_tokens": KNOWN,
        },
    )
    no_window = subject.function(
        "Growth.first_kept", {"table": None, "seq": None, "self.max_block_sliding_window": None}
    )
    stop = subject.function("num_blocks_for", {"num_slots": KNOWN + LOOKAHEAD, "block_size": BLOCK_SIZE})
    bound = subject.spec_function("entries_in_window", COMPUTED, KNOWN + LOOKAHEAD, WINDOW)
    computed_are_known = Hypothesis("computed tokens have slots", COMPUTED <= KNOWN)
    reads = Hypothesis("a step to come reads a position", z3.And(READER >= COMPUTED, POSITION > READER - WINDOW))
    in_new = Hypothesis(
        "the position lies in a block that this append drops",
        z3.And(DROPPED <= POSITION / BLOCK_SIZE, POSITION / BLOCK_SIZE < kept, POSITION >= 0),
    )
    yield subject.claim("what is dropped is not read", z3.BoolVal(False), reads, in_new)
    yield subject.claim("what was dropped stays dropped", kept >= DROPPED)
    yield subject.claim(
        "no block is dropped that is not full of known tokens",
        z3.Or(kept == DROPPED, kept * BLOCK_SIZE <= KNOWN),
    )
    yield subject.claim(
        "a table holds no more than the specification's bound", stop - kept <= bound, computed_are_known
    )
    due = COMPUTED / BLOCK_SIZE - most
    yield subject.claim(
        "it holds just that if it never dropped more than it had to",
        stop - kept == bound,
        computed_are_known,
        Hypothesis("no more dropped than due", DROPPED <= z3.If(due > 0, due, 0)),
    )
    yield subject.claim(
        "while it decodes, a table holds one block more than the window's at most",
        stop - kept <= most + 1,
        Hypothesis("one token is not computed", z3.And(KNOWN == COMPUTED + 1, LOOKAHEAD == 0)),
    )
    yield subject.claim(
        "a window reaches over no more than the window's blocks",
        POSITION / BLOCK_SIZE - READER / BLOCK_SIZE + 1 <= most,
        Hypothesis("from a position to one that it reads", z3.And(POSITION - WINDOW < READER, READER <= POSITION)),
        by_lemma(BLOCK_SIZE, READER / BLOCK_SIZE, POSITION / BLOCK_SIZE, most),
    )
    table_kept = subject.function(
        "BlockTable._first_kept",
        {
            "num_computed_slots": COMPUTED,
            "self._max_block_sliding_window": most,
            "self._num_full_slots": KNOWN,
            "self._block_size": BLOCK_SIZE,
        },
    )
    yield subject.claim(
        "a block table drops the same blocks",
        kept == z3.If(table_kept > DROPPED, table_kept, DROPPED),
        computed_are_known,
    )
    yield subject.claim("without a window nothing is dropped", no_window == 0)
    yield from subject.well_defined()
