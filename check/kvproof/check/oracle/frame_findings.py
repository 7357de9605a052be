"""The findings about tables that a call was not about, and what counts when two observations are compared."""

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.unordered import unordered
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Observation


def has_blocks(tables: list[list[int]] | None) -> bool:
    """Whether a sequence that is shown with these tables has blocks. Without blocks it may have empty ones, or none."""
    return any(tables) if isinstance(tables, list) else bool(tables)


def what_counts(observed: Observation) -> Observation:
    """The observation without empty tables, and without an order where the order says nothing."""
    observed = unordered(observed)
    if not isinstance(observed.tables, dict):  # types are not checked at each call
        return observed
    return observed._replace(tables={seq: tables for seq, tables in observed.tables.items() if has_blocks(tables)})


def table_changed(call: str, seq: ExpectedSequence, observed: list[list[int]] | None, which: str) -> Finding:
    """The finding that a table of a sequence changed, which should not have; the first one that did."""
    pairs = [(part, new) for part, new in zip(seq.parts, observed or [], strict=False) if part.observed_table != new]
    part, table = pairs[0] if pairs else (seq, "gone")
    return Finding(
        "frame-kept",
        f"the table of $sequence, which {which}, went $expected -> $observed",
        call=call,
        expected=part.observed_table,
        observed=table,
        sequence=part.name,
    )


def leaked(call: str, seq: ExpectedSequence, tables: list[list[int]]) -> Finding:
    """The finding that a sequence that waits has blocks."""
    sentence = "$sequence waits, but has $observed"
    return Finding(
        "no-leak-at-rest",
        sentence,
        call=call,
        observed=tables,
        blocks=[block for table in tables for block in table],
        sequence=f"sequence {seq.id}",
    )


def tables_left(call: str, tables: dict[int, list[list[int]]]) -> Finding:
    """The finding that sequences that are over still have tables."""
    return Finding(
        "no-leak-at-rest", "sequences that are over still have tables: $observed", call=call, observed=tables
    )
