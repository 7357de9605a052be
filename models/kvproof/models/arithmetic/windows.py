"""The sliding window: a dropped block is never read again, and the number of held blocks is bounded.

Attention at position p reads the positions above p - window, up to p. Every later step is at a position of at least the
number of computed tokens; so a block may be dropped when its last position is at most that number minus the window.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.models.arithmetic.sources import BLOCK_SIZE, SIZES, Sources, Subject, non_negative
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.multiplication_lemma import by_lemma

WINDOW, COMPUTED, KNOWN, LOOKAHEAD, DROPPED = z3.Ints("window num_computed num_tokens num_lookahead_slots num_dropped")
POSITION, READER = z3.Ints("position reader")
A_WINDOW = Hypothesis("a window has a token", WINDOW >= 1)
COMPUTED_ARE_KNOWN = Hypothesis("computed tokens have slots", COMPUTED <= KNOWN)


@dataclass(frozen=True)
class Window:
    """A sliding window as the implementation and the specification read it.

    most: the blocks that a window reaches over. kept: the first entry that an append keeps; without_window: the same if
    there is no window; of_block_table: as a `BlockTable` has it. stop: the end of the table. bound: how many entries
    the specification allows.
    """

    subject: Subject
    most: Any
    kept: Any
    without_window: Any
    stop: Any
    bound: Any
    of_block_table: Any

    @classmethod
    def read(cls, sources: Sources) -> "Window":
        """The window in the source code."""
        some = non_negative(COMPUTED, KNOWN, LOOKAHEAD, DROPPED)
        subject = Subject("a sliding window", sources, "window-kept", SIZES, A_WINDOW, some)
        most = subject.function("num_window_blocks", {"sliding_window": WINDOW, "block_size": BLOCK_SIZE})
        with_window = {
            "table": None,
            "seq": None,
            "self.max_block_sliding_window": most,
            "seq.data.get_num_computed_tokens()": COMPUTED,
            "self.block_size": BLOCK_SIZE,
            "table.num_dropped": DROPPED,
            "table.num_tokens": KNOWN,
        }
        without = {"table": None, "seq": None, "self.max_block_sliding_window": None}
        of_block_table = {
            "num_computed_slots": COMPUTED,
            "self._max_block_sliding_window": most,
            "self._num_full_slots": KNOWN,
            "self._block_size": BLOCK_SIZE,
        }
        return cls(
            subject,
            most,
            subject.function("Growth.first_kept", with_window),
            subject.function("Growth.first_kept", without),
            subject.function("num_blocks_for", {"num_slots": KNOWN + LOOKAHEAD, "block_size": BLOCK_SIZE}),
            subject.spec_function("entries_in_window", COMPUTED, KNOWN + LOOKAHEAD, WINDOW),
            subject.function("BlockTable._first_kept", of_block_table),
        )

    def what_is_dropped(self) -> Iterator[Obligation]:
        """An append drops nothing that is still read."""
        claim, kept = self.subject.claim, self.kept
        reads = Hypothesis("a step to come reads a position", z3.And(READER >= COMPUTED, POSITION > READER - WINDOW))
        in_new = Hypothesis(
            "the position lies in a block that this append drops",
            z3.And(DROPPED <= POSITION / BLOCK_SIZE, POSITION / BLOCK_SIZE < kept, POSITION >= 0),
        )
        is_full = z3.Or(kept == DROPPED, kept * BLOCK_SIZE <= KNOWN)
        yield claim("what is dropped is not read", z3.BoolVal(False), reads, in_new)
        yield claim("what was dropped stays dropped", kept >= DROPPED)
        yield claim("no block is dropped that is not full of known tokens", is_full)
        of_block_table = z3.If(self.of_block_table > DROPPED, self.of_block_table, DROPPED)
        yield claim("a block table drops the same blocks", kept == of_block_table, COMPUTED_ARE_KNOWN)
        yield claim("without a window nothing is dropped", self.without_window == 0)

    def what_is_held(self) -> Iterator[Obligation]:
        """A table holds no more blocks than the window needs."""
        claim, held = self.subject.claim, self.stop - self.kept
        yield claim("a table holds no more than the specification's bound", held <= self.bound, COMPUTED_ARE_KNOWN)
        due = COMPUTED / BLOCK_SIZE - self.most
        yield claim(
            "it holds just that if it never dropped more than it had to",
            held == self.bound,
            COMPUTED_ARE_KNOWN,
            Hypothesis("no more dropped than due", DROPPED <= z3.If(due > 0, due, 0)),
        )
        yield claim(
            "while it decodes, a table holds one block more than the window's at most",
            held <= self.most + 1,
            Hypothesis("one token is not computed", z3.And(KNOWN == COMPUTED + 1, LOOKAHEAD == 0)),
        )
        yield claim(
            "a window reaches over no more than the window's blocks",
            POSITION / BLOCK_SIZE - READER / BLOCK_SIZE + 1 <= self.most,
            Hypothesis("from a position to one that it reads", z3.And(POSITION - WINDOW < READER, READER <= POSITION)),
            by_lemma(BLOCK_SIZE, READER / BLOCK_SIZE, POSITION / BLOCK_SIZE, self.most),
        )


def obligations(sources: Sources) -> Iterator[Obligation]:
    window = Window.read(sources)
    yield from window.what_is_dropped()
    yield from window.what_is_held()
    yield from window.subject.well_defined()
