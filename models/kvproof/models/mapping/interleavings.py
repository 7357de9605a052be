"""Any interleaving of the reads and writes of a list of any length, as a parallel kernel may run it.

There is a thread for each copy and each part of a block (a word, a slot or a layer: any division of a block). It reads
its part into a register, and later writes it. The invariant: a register holds what the source held at the start, and a
written block holds what one of the copies to it has read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import z3

from kvproof.models.mapping.copies import CONTENT, INTEGER
from kvproof.models.mapping.lists import (
    A_STEP,
    AS_READ_FIRST,
    COPIES,
    NOW,
    NUM_COPIES,
    RACE_FREE,
    START,
    STEP,
    P,
    X,
    mapping_obligation,
)
from kvproof.models.obligation import Hypothesis, Obligation

Part = Callable[[z3.ArithRef, z3.ArithRef], Any]  # of a block or a copy, and a part of it

SUBJECT = "any interleaving"
PART, HERE = z3.Ints("part here")  # any part of a block, and the part that the current thread moves
START_PART, NOW_PART = (z3.Function(name, INTEGER, INTEGER, CONTENT) for name in ("start_part", "now_part"))


@dataclass(frozen=True)
class Moment:
    """What there is between two events.

    memory: of each block and part. registers and phases: of each thread; phase 0 is before its read, 1 before its
    write, 2 after it. writers: of each block and part, the copy that wrote it last, or -1.
    """

    memory: Part
    registers: Part
    phases: Part
    writers: Part

    def holds(self) -> z3.BoolRef:
        """The invariant."""
        return z3.And(
            z3.ForAll([P, PART], z3.Implies(COPIES.has(P), self._of_threads())), z3.ForAll([X, PART], self._of_blocks())
        )

    def _of_threads(self) -> z3.BoolRef:
        phase = self.phases(P, PART)
        return z3.And(
            phase >= 0,
            phase <= 2,
            z3.Implies(phase >= 1, self.registers(P, PART) == START_PART(COPIES.source(P), PART)),
            z3.Implies(phase == 2, self.writers(COPIES.target(P), PART) >= 0),
        )

    def _of_blocks(self) -> z3.BoolRef:
        wrote = self.writers(X, PART)
        content = z3.If(wrote >= 0, START_PART(COPIES.source(wrote), PART), START_PART(X, PART))
        return z3.And(
            wrote >= -1,
            wrote < NUM_COPIES,
            z3.Implies(wrote >= 0, COPIES.target(wrote) == X),
            self.memory(X, PART) == content,
        )


ANY = Moment(
    NOW_PART,
    z3.Function("register", INTEGER, INTEGER, CONTENT),
    z3.Function("phase_of", INTEGER, INTEGER, INTEGER),
    z3.Function("writer", INTEGER, INTEGER, INTEGER),
)
SO_FAR = Hypothesis("so far", ANY.holds())


def obligations() -> Iterator[Obligation]:
    """The invariant holds before the first event and after each event; and its consequence at the end."""
    nothing_done = z3.And(
        z3.ForAll([X, PART], z3.And(NOW_PART(X, PART) == START_PART(X, PART), ANY.writers(X, PART) == -1)),
        z3.ForAll([P, PART], ANY.phases(P, PART) == 0),
    )
    sizes = Hypothesis("sizes", NUM_COPIES >= 0)
    nothing = Hypothesis("nothing done", nothing_done)
    yield mapping_obligation(SUBJECT, "before the first event", ANY.holds(), nothing, sizes)
    yield mapping_obligation(SUBJECT, "one read more", _after_a_read().holds(), RACE_FREE, SO_FAR)
    has_read = Hypothesis("the thread has read", ANY.phases(STEP, HERE) == 1)
    yield mapping_obligation(SUBJECT, "one write more", _after_a_write().holds(), A_STEP, SO_FAR, has_read)
    all_done = z3.ForAll([P, PART], z3.Implies(COPIES.has(P), ANY.phases(P, PART) == 2))
    this_part = z3.ForAll([X], START(X) == START_PART(X, HERE))
    yield mapping_obligation(
        SUBJECT,
        "when all is done the bytes are those of one copy after the other",
        z3.ForAll([X], NOW_PART(X, HERE) == NOW(X)),
        RACE_FREE,
        SO_FAR,
        Hypothesis("every thread has written", all_done),
        Hypothesis("the same part of the memory", this_part),
        AS_READ_FIRST,
    )


def _is_thread(i: z3.ArithRef, part: z3.ArithRef) -> z3.BoolRef:
    return z3.And(i == STEP, part == HERE)


def _after_a_read() -> Moment:
    read = NOW_PART(COPIES[STEP].source, HERE)
    return replace(
        ANY,
        registers=lambda i, part: z3.If(_is_thread(i, part), read, ANY.registers(i, part)),
        phases=lambda i, part: z3.If(_is_thread(i, part), 1, ANY.phases(i, part)),
    )


def _after_a_write() -> Moment:
    def is_written(x: z3.ArithRef, part: z3.ArithRef) -> z3.BoolRef:
        return z3.And(x == COPIES[STEP].target, part == HERE)

    return replace(
        ANY,
        memory=lambda x, part: z3.If(is_written(x, part), ANY.registers(STEP, HERE), NOW_PART(x, part)),
        phases=lambda i, part: z3.If(_is_thread(i, part), 2, ANY.phases(i, part)),
        writers=lambda x, part: z3.If(is_written(x, part), STEP, ANY.writers(x, part)),
    )
