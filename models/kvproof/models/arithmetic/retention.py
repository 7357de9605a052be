"""Retention: who goes on from a boundary that is kept finds all entries that it reads.

An entry is an index of a table, and a boundary a number of entries. `is_kept` asks only the replay boundary, the
junction, and the two multiples of the interval around the entry.
"""

from collections.abc import Iterator

import z3

from kvproof.models.arithmetic.sources import BLOCK_SIZE, SIZES, Sources, Subject, non_negative
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.multiplication_lemma import by_lemma

INDEX, WINDOW, INTERVAL, REPLAY, JUNCTION, DROPPED = z3.Ints("index window interval replay junction num_dropped")
TIMES, BOUNDARY, LATER, TOKENS, LEFT, HIT = z3.Ints("times boundary later num_tokens num_left num_hit")
A_WINDOW = Hypothesis("a window has a token", WINDOW >= 1)
AN_INTERVAL = Hypothesis("an interval", INTERVAL >= 1)
ONE_DROPPED = Hypothesis("at most one block is dropped", z3.And(0 <= DROPPED, DROPPED <= 1))


def obligations(sources: Sources) -> Iterator[Obligation]:
    yield from kept_entries(sources)
    yield from prompts_again(sources)


def kept_entries(sources: Sources) -> Iterator[Obligation]:
    """Every entry that is read from a kept boundary is kept."""
    subject = Subject(
        "entries kept for later sequences",
        sources,
        "hit-found",
        SIZES,
        A_WINDOW,
        ONE_DROPPED,
        non_negative(INDEX, REPLAY, JUNCTION),
    )

    def read_from(boundary: z3.ArithRef) -> z3.BoolRef:
        value: z3.BoolRef = subject.spec_function("is_read_from", INDEX, boundary, WINDOW, DROPPED)
        return value

    def is_kept(interval: z3.ArithRef | int) -> z3.BoolRef:
        value: z3.BoolRef = subject.spec_function("is_kept", INDEX, WINDOW, interval, REPLAY, JUNCTION, DROPPED)
        return value

    kept, quotient = is_kept(INTERVAL), INDEX / INTERVAL
    multiple = Hypothesis("a multiple of the interval", z3.And(TIMES >= 1, BOUNDARY == TIMES * INTERVAL))
    yield subject.claim("what the prompt reads when it comes again is kept", z3.Implies(read_from(REPLAY), kept))
    yield subject.claim("what is read from the junction is kept", z3.Implies(read_from(JUNCTION), kept))
    yield subject.claim(
        "a boundary that is nearer reads all that a later one reads before it",
        read_from(BOUNDARY),
        Hypothesis("read from a later boundary", z3.And(read_from(LATER), BOUNDARY <= LATER)),
        Hypothesis("the entry is before the nearer one", INDEX < BOUNDARY),
        by_lemma(BLOCK_SIZE, BOUNDARY, LATER),
    )
    following = quotient * INTERVAL + INTERVAL
    nearer = z3.Implies(z3.And(read_from(BOUNDARY), following <= BOUNDARY, INDEX < following), read_from(following))
    yield subject.claim(
        "what is read from any multiple of the interval is kept",
        kept,
        AN_INTERVAL,
        multiple,
        Hypothesis("read from it", read_from(BOUNDARY)),
        Hypothesis("a boundary that is nearer reads it too", nearer),
        by_lemma(INTERVAL, TIMES, quotient, quotient + 1),
    )
    yield subject.claim(
        "an interval of one entry keeps every entry of a window that reads back",
        is_kept(1),
        Hypothesis("a token reads one before it", WINDOW >= 2),
    )
    yield subject.claim(
        "without an interval nothing behind the last boundary is kept",
        z3.Not(is_kept(0)),
        Hypothesis("behind both", z3.And(REPLAY + DROPPED <= INDEX, JUNCTION + DROPPED <= INDEX)),
    )
    yield from subject.well_defined()


def prompts_again(sources: Sources) -> Iterator[Obligation]:
    """The replay boundary is the longest hit of the same prompt."""
    counts = non_negative(TOKENS, LEFT, HIT)
    subject = Subject("a prompt that comes again", sources, "hit-found", SIZES, ONE_DROPPED, counts)
    again = subject.spec_function("entries_found_again", TOKENS, LEFT, DROPPED)
    is_hit = subject.spec_function("may_hit", (HIT + DROPPED) * BLOCK_SIZE, TOKENS - LEFT)
    yield subject.claim(
        "no hit goes beyond it", HIT <= again, Hypothesis("a hit", is_hit), by_lemma(BLOCK_SIZE, HIT + DROPPED, again)
    )
    yield subject.claim(
        "a hit can end there",
        subject.spec_function("may_hit", (again + DROPPED) * BLOCK_SIZE, TOKENS - LEFT),
        Hypothesis("there is one", again > 0),
    )
    yield from subject.well_defined()
