"""Lists of every length, by induction.

*Reading everything first.* After k copies, block x holds what the source of the last copy to x held at the start, or,
if there is no copy to x among them, what x held at the start. `last(x)` is the index of that copy, or -1. The induction
step needs that no copy reads what an earlier one has written (`forward_free`).

*Any order.* Every permutation of a race-free list is forward-free. So both lists give the same bytes as reading
everything first, and the last copies to x in both have the same source.

*Neighbours.* Sometimes only some pairs of copies may be exchanged, for example between the phases of a step. Exchanging
two neighbours that commute changes nothing, whatever comes before and after. A list in which no two neighbours are out
of order is sorted, so such exchanges reach the sorted order.

*Any interleaving* of reads and writes, as a parallel kernel may run them. There is a thread for each copy and each part
of a block (a word, a slot or a layer: any division of a block). It reads its part into a register, and later writes it.
The invariant: a register holds what the source held at the start, and a written block holds what one of the copies to
it has read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import z3

from kvproof.models.mapping.copies import CONTENT, INTEGER, Copy, CopyList, Memory, commute, forward_free, race_free
from kvproof.models.obligation import Hypothesis, Obligation

NUM_COPIES = z3.Int("num_copies")
COPIES = CopyList(z3.Function("source", INTEGER, INTEGER), z3.Function("target", INTEGER, INTEGER), NUM_COPIES)
START = z3.Function("start", INTEGER, CONTENT)
NOW = z3.Function("now", INTEGER, CONTENT)
LAST = z3.Function("last", INTEGER, INTEGER)

Numbers = Callable[[z3.ArithRef], z3.ArithRef]

P, Q, X, STEP = z3.Ints("p q x step")  # copies p and q, a block, the current copy

Part = Callable[[z3.ArithRef, z3.ArithRef], Any]  # of a block or a copy, and a part of it

SUBJECT = "any interleaving"
PART, HERE = z3.Ints("part here")  # any part of a block, and the part that the current thread moves
START_PART, NOW_PART = (z3.Function(name, INTEGER, INTEGER, CONTENT) for name in ("start_part", "now_part"))


def for_pairs(condition: z3.BoolRef, *where: z3.BoolRef) -> z3.BoolRef:
    """The condition for all copies P and Q of the list, where `where` holds."""
    return z3.ForAll([P, Q], z3.Implies(z3.And(COPIES.has(P), COPIES.has(Q), *where), condition))


DISTINCT_TARGETS = Hypothesis("distinct targets", for_pairs(COPIES[P].target != COPIES[Q].target, P != Q))
NO_TARGET_IS_A_SOURCE = Hypothesis("no target is a source", for_pairs(COPIES[P].target != COPIES[Q].source))
FORWARD_FREE = Hypothesis(
    "no copy reads what an earlier one wrote", for_pairs(forward_free(COPIES[P], COPIES[Q]), P < Q)
)
RACE_FREE = Hypothesis("no two copies race", for_pairs(race_free(COPIES[P], COPIES[Q]), P != Q))
A_STEP = Hypothesis("a copy of the list", COPIES.has(STEP))


def as_read_first(copies: CopyList, num_done: z3.ArithRef | int, now: Memory, last: Numbers) -> z3.BoolRef:
    """The memory `now` after `num_done` copies is as if all reads came first; `last` is the last writer of a block."""
    return z3.And(
        z3.ForAll(
            [X],
            z3.And(
                last(X) >= -1,
                last(X) < num_done,
                z3.Implies(last(X) >= 0, copies.target(last(X)) == X),
                now(X) == z3.If(last(X) >= 0, START(copies.source(last(X))), START(X)),
            ),
        ),
        z3.ForAll([P], z3.Implies(z3.And(P >= 0, P < num_done), last(copies.target(P)) >= 0)),
    )


AS_READ_FIRST = Hypothesis("the list as read first", as_read_first(COPIES, NUM_COPIES, NOW, LAST))


def mapping_obligation(subject: str, claim: str, goal: z3.BoolRef, *hypotheses: Hypothesis) -> Obligation:
    """An obligation of this suite, for the property mapping-hazard-free."""
    return Obligation("mapping", subject, claim, "mapping-hazard-free", hypotheses, goal)


def obligations() -> Iterator[Obligation]:
    """The theorems about lists."""
    yield from reading_everything_first()
    yield from any_order()
    yield from neighbours()
    yield from contract()
    yield from interleavings()


def reading_everything_first() -> Iterator[Obligation]:
    subject = "one after the other is as reading everything first"
    nothing_done = z3.ForAll([X], z3.And(NOW(X) == START(X), LAST(X) == -1))
    yield mapping_obligation(
        subject, "before the first copy", as_read_first(COPIES, 0, NOW, LAST), Hypothesis("nothing done", nothing_done)
    )
    step = COPIES[STEP]
    yield mapping_obligation(
        subject,
        "one copy more",
        as_read_first(
            COPIES,
            STEP + 1,
            lambda x: z3.If(x == step.target, NOW(step.source), NOW(x)),
            lambda x: z3.If(x == step.target, STEP, LAST(x)),
        ),
        FORWARD_FREE,
        A_STEP,
        Hypothesis("so far", as_read_first(COPIES, STEP, NOW, LAST)),
    )


def any_order() -> Iterator[Obligation]:
    subject = "any order"
    order, place = z3.Function("order", INTEGER, INTEGER), z3.Function("place", INTEGER, INTEGER)
    is_order = z3.ForAll(
        [P],
        z3.Implies(
            COPIES.has(P),
            z3.And(COPIES.has(order(P)), COPIES.has(place(P)), order(place(P)) == P, place(order(P)) == P),
        ),
    )
    rearranged = Hypothesis("a rearrangement, with its inverse", is_order)
    source, target = z3.Function("source_of", INTEGER, INTEGER), z3.Function("target_of", INTEGER, INTEGER)
    other = CopyList(source, target, NUM_COPIES)
    as_ordered = Hypothesis(
        "the rearranged list",
        z3.ForAll([P], z3.And(source(P) == COPIES.source(order(P)), target(P) == COPIES.target(order(P)))),
    )
    yield mapping_obligation(
        subject,
        "in no order does a copy read what an earlier one wrote",
        z3.ForAll([P, Q], z3.Implies(z3.And(other.has(P), other.has(Q), P < Q), forward_free(other[P], other[Q]))),
        RACE_FREE,
        rearranged,
        as_ordered,
    )
    then, last_then = z3.Function("then", INTEGER, CONTENT), z3.Function("last_then", INTEGER, INTEGER)
    other_as_first = Hypothesis("the rearranged list as read first", as_read_first(other, NUM_COPIES, then, last_then))
    found = z3.ForAll(
        [P],
        z3.Implies(COPIES.has(P), z3.And(other.has(place(P)), target(place(P)) == COPIES.target(P))),
        patterns=[COPIES.target(P)],
    )
    yield mapping_obligation(subject, "every copy has its place in the rearranged list", found, rearranged, as_ordered)
    same_blocks = z3.ForAll([X], (LAST(X) >= 0) == (last_then(X) >= 0))
    stays = z3.ForAll([P], z3.Implies(COPIES.has(P), COPIES.has(order(P))))
    yield mapping_obligation(
        subject,
        "the same blocks are written",
        same_blocks,
        Hypothesis("every copy has its place in the rearranged list", found),
        Hypothesis("every copy of the rearranged list is one of the list", stays),
        as_ordered,
        AS_READ_FIRST,
        other_as_first,
    )
    yield mapping_obligation(
        subject,
        "the bytes are the same",
        z3.ForAll([X], NOW(X) == then(X)),
        RACE_FREE,
        Hypothesis("every copy of the rearranged list is one of the list", stays),
        as_ordered,
        AS_READ_FIRST,
        other_as_first,
        Hypothesis("the same blocks are written", same_blocks),
    )


def neighbours() -> Iterator[Obligation]:
    subject = "neighbours"
    one, other = Copy(*z3.Ints("one_source one_target")), Copy(*z3.Ints("other_source other_target"))
    forwards, backwards = other.applied(one.applied(NOW)), one.applied(other.applied(NOW))
    yield mapping_obligation(
        subject,
        "exchanging two that commute changes no byte, whatever came before",
        z3.ForAll([X], forwards(X) == backwards(X)),
        Hypothesis("they commute", commute(one, other)),
    )
    then, after = z3.Function("then", INTEGER, CONTENT), COPIES[STEP]
    yield mapping_obligation(
        subject,
        "what follows keeps equal memories equal",
        z3.ForAll([X], after.applied(NOW)(X) == after.applied(then)(X)),
        Hypothesis("equal so far", z3.ForAll([X], NOW(X) == then(X))),
    )
    phase = z3.Function("phase", INTEGER, INTEGER)
    in_place = z3.ForAll([Q], z3.Implies(z3.And(Q >= 0, Q + 1 < NUM_COPIES), phase(Q) <= phase(Q + 1)))
    yield mapping_obligation(
        subject,
        "a list in which no neighbour stands wrong is sorted: one place further",
        phase(P) <= phase(STEP + 1),
        Hypothesis("no neighbour stands wrong", in_place),
        Hypothesis("places of the list", z3.And(0 <= P, P <= STEP, STEP + 1 < NUM_COPIES)),
        Hypothesis("sorted so far", phase(P) <= phase(STEP)),
    )


def contract() -> Iterator[Obligation]:
    """The contract of the cache engine for a list of copies within one pool: its conditions, and the result."""
    subject = "distinct targets, none a source"
    asked = (DISTINCT_TARGETS, NO_TARGET_IS_A_SOURCE)
    yield mapping_obligation(subject, "no two copies race", RACE_FREE.formula, *asked)
    yield mapping_obligation(
        subject,
        "every target holds what its source held",
        z3.ForAll([P], z3.Implies(COPIES.has(P), NOW(COPIES.target(P)) == START(COPIES.source(P)))),
        DISTINCT_TARGETS,
        AS_READ_FIRST,
    )
    yield mapping_obligation(
        subject,
        "every source keeps its bytes",
        z3.ForAll([P], z3.Implies(COPIES.has(P), NOW(COPIES.source(P)) == START(COPIES.source(P)))),
        NO_TARGET_IS_A_SOURCE,
        AS_READ_FIRST,
    )
    is_target = z3.Exists([P], z3.And(COPIES.has(P), COPIES.target(P) == X))
    yield mapping_obligation(
        subject,
        "a block that is no target keeps its bytes",
        z3.ForAll([X], z3.Implies(z3.Not(is_target), NOW(X) == START(X))),
        AS_READ_FIRST,
    )
    yield mapping_obligation(
        subject,
        "one copy again changes nothing",
        z3.ForAll([X], COPIES[STEP].applied(NOW)(X) == NOW(X)),
        *asked,
        A_STEP,
        AS_READ_FIRST,
    )


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


def interleavings() -> Iterator[Obligation]:
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
