"""Any interleaving of the reads and writes of a list of any length, as a parallel kernel may run it.

There is a thread for each copy and each part of a block (a word, a slot or a layer: any division of a block). It reads
its part into a register, and later writes it. The invariant: a register holds what the source held at the start, and a
written block holds what one of the copies to it has read.
"""

from collections.abc import Callable, Iterator
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

PART, HERE = z3.Ints("part here")  # any part of a block, and the part that the current thread moves


def obligations() -> Iterator[Obligation]:
    """The invariant holds before the first event and after each event; and its consequence at the end."""
    subject = "any interleaving"
    start, now = (z3.Function(name, INTEGER, INTEGER, CONTENT) for name in ("start_part", "now_part"))
    register = z3.Function("register", INTEGER, INTEGER, CONTENT)
    phase, writer = (z3.Function(name, INTEGER, INTEGER, INTEGER) for name in ("phase_of", "writer"))

    def holds(memory: Part, registers: Part, phases: Part, writers: Part) -> z3.BoolRef:
        """The invariant between two events. Phase 0 is before the read of a thread, 1 before its write, 2 after it."""
        wrote = writers(X, PART)
        return z3.And(
            z3.ForAll(
                [P, PART],
                z3.Implies(
                    COPIES.has(P),
                    z3.And(
                        phases(P, PART) >= 0,
                        phases(P, PART) <= 2,
                        z3.Implies(phases(P, PART) >= 1, registers(P, PART) == start(COPIES.source(P), PART)),
                        z3.Implies(phases(P, PART) == 2, writers(COPIES.target(P), PART) >= 0),
                    ),
                ),
            ),
            z3.ForAll(
                [X, PART],
                z3.And(
                    wrote >= -1,
                    wrote < NUM_COPIES,
                    z3.Implies(wrote >= 0, COPIES.target(wrote) == X),
                    memory(X, PART) == z3.If(wrote >= 0, start(COPIES.source(wrote), PART), start(X, PART)),
                ),
            ),
        )

    def is_thread(i: z3.ArithRef, part: z3.ArithRef) -> z3.BoolRef:
        return z3.And(i == STEP, part == HERE)

    nothing_done = z3.And(
        z3.ForAll([X, PART], z3.And(now(X, PART) == start(X, PART), writer(X, PART) == -1)),
        z3.ForAll([P, PART], phase(P, PART) == 0),
    )
    so_far = Hypothesis("so far", holds(now, register, phase, writer))
    copy = COPIES[STEP]
    yield mapping_obligation(
        subject,
        "before the first event",
        holds(now, register, phase, writer),
        Hypothesis("nothing done", nothing_done),
        Hypothesis("sizes", NUM_COPIES >= 0),
    )
    yield mapping_obligation(
        subject,
        "one read more",
        holds(
            now,
            lambda i, part: z3.If(is_thread(i, part), now(copy.source, HERE), register(i, part)),
            lambda i, part: z3.If(is_thread(i, part), 1, phase(i, part)),
            writer,
        ),
        RACE_FREE,
        so_far,
    )
    yield mapping_obligation(
        subject,
        "one write more",
        holds(
            lambda x, part: z3.If(z3.And(x == copy.target, part == HERE), register(STEP, HERE), now(x, part)),
            register,
            lambda i, part: z3.If(is_thread(i, part), 2, phase(i, part)),
            lambda x, part: z3.If(z3.And(x == copy.target, part == HERE), STEP, writer(x, part)),
        ),
        A_STEP,
        so_far,
        Hypothesis("the thread has read", phase(STEP, HERE) == 1),
    )
    all_done = z3.ForAll([P, PART], z3.Implies(COPIES.has(P), phase(P, PART) == 2))
    this_part = z3.ForAll([X], START(X) == start(X, HERE))
    yield mapping_obligation(
        subject,
        "when all is done the bytes are those of one copy after the other",
        z3.ForAll([X], now(X, HERE) == NOW(X)),
        RACE_FREE,
        so_far,
        Hypothesis("every thread has written", all_done),
        Hypothesis("the same part of the memory", this_part),
        AS_READ_FIRST,
    )
