"""Compare what a subject shows with the specification, and with what it showed before.

Of its pool these are refcounts, free lists, counters and blocks that are set aside; of its tables, those that a call
was not about. Free ids, blocks that it keeps, pairs of a mapping and entries of a store are answered in no order. A
manager may sort its free list when it is asked, or keep its tables in a hash map whose order differs from process to
process. So two answers are compared with these parts sorted. The order of a table, of the chunks of a step and of the
ids that a pool gives is a part of the answer.
"""

from collections.abc import Callable
from typing import Any

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.protocol.finding import Finding, direction
from kvproof.check.protocol.manager import Observation, Reserved
from kvproof.check.protocol.scheduler import ScheduledStep
from kvproof.check.protocol.store import Staged, StoreObservation
from kvproof.spec.text import operations
from kvproof.spec.text.state import GPU, HOST, RESERVED, USED

DEVICE = ("GPU", "host")
SWAPS = ("swap_out", "swap_in")  # calls that answer with the pairs of a mapping
EVICTIONS = ("evict",)  # and with keys


def compare_pool(explainer: Explainer, context: str, is_at_rest: Callable[[], bool]) -> None:
    """The refcounts, free lists and counters of the subject must be those of the specification."""
    state, observed = explainer.state, explainer.observed
    if explainer.order is not None:
        explainer.order.judge(context)
    if len(observed.reserved) != explainer.num_reserved:
        _set_aside(explainer, observed.reserved)
    if observed.refs is not None and observed.refs != state.refcount:
        _compare_refcounts(explainer, observed.refs, context)
    if observed.free_ids is not None:
        _compare_free_ids(explainer, observed.free_ids, context)
    kept = {block for block in observed.kept if block in explainer.blocks and state.status[block] != USED}
    num_kept = len(kept) if kept and not is_at_rest() else 0
    for pool in (GPU, HOST):
        unused = explainer.unused_in(state, pool) - (num_kept if pool == GPU else 0)
        if observed.free[pool] != unused:
            is_early = observed.free[pool] > unused and any(map(explainer.is_left_in_flight, explainer.blocks))
            raise Finding(
                "in-flight-held" if is_early else "no-leak-at-rest" if is_at_rest() else "conservation",
                f"{DEVICE[pool]}: {state.count[pool][USED]} blocks in tables, so $expected are free; "
                "the subject counts $observed",
                call=context,
                expected=unused,
                observed=observed.free[pool],
                about=direction([(unused, observed.free[pool])]),
            )


def _compare_refcounts(explainer: Explainer, refs: list[int], context: str) -> None:
    expected, pins = explainer.state.refcount, explainer.state.pins
    if len(refs) != len(expected):
        sentence = "the subject has refcounts of $observed blocks, of $expected"
        raise Finding("refcount-exact", sentence, call=context, expected=len(expected), observed=len(refs))
    # The subject may count what is in flight as holders.
    wrong = [block for block, observed in enumerate(refs) if not 0 <= observed - expected[block] <= pins[block]]
    if wrong:
        block = wrong[0]
        raise Finding(
            "refcount-exact",
            f"refcount of block {block}: the specification says $expected, the subject $observed",
            call=context,
            expected=expected[block],
            observed=refs[block],
            blocks=[block],
            about=direction((expected[one], refs[one]) for one in wrong),
        )


def _compare_free_ids(explainer: Explainer, free_ids: list[int], context: str) -> None:
    status, pins, num_blocks, ids = explainer.state.status, explainer.state.pins, explainer.num_blocks, set(free_ids)
    is_counted = len(free_ids) == len(ids) == sum(explainer.observed.free) and ids <= explainer.blocks
    if is_counted and not (explainer.has_flights and any(pins)) and USED not in map(status.__getitem__, free_ids):
        return  # what is looked for below is not there
    for block in free_ids:
        if not 0 <= block < num_blocks:
            sentence = "the free list names block $observed, of $expected; it is out of range"
            raise Finding("lists-agree", sentence, call=context, expected=num_blocks, observed=block)
        if pins[block] and explainer.is_left_in_flight(block):
            sentence = f"block {block} is free, and in use by what is in flight"
            raise Finding("in-flight-held", sentence, call=context, blocks=[block])
        if status[block] == USED:
            sentence = f"block {block} is free, and in a live table"
            raise Finding("no-use-after-free", sentence, call=context, blocks=[block])
    if len(ids) != len(free_ids):
        sentence = "the free list names a block twice: $observed"
        raise Finding("lists-agree", sentence, call=context, observed=sorted(free_ids))
    if len(free_ids) != sum(explainer.observed.free):
        sentence, num_free = "$observed blocks in the free lists, $expected counted", sum(explainer.observed.free)
        about = direction([(num_free, len(free_ids))])
        raise Finding("lists-agree", sentence, call=context, expected=num_free, observed=len(free_ids), about=about)


def _set_aside(explainer: Explainer, reserved: tuple[int, ...]) -> None:
    """The manager reserves more blocks for itself. The same call may have released one of them."""
    status = explainer.state.status
    for block in [one for one in reserved if not (0 <= one < len(status) and status[one] == RESERVED)]:
        explainer.run(operations.set_aside(explainer.state, block), "keeping a block for itself")
    explainer.num_reserved = len(reserved)


def unordered(answer: Any, call: str = "") -> Any:
    """The answer of a call, with every part sorted whose order says nothing. Raises TypeError for a wrong type."""
    match answer:
        case Observation() | StoreObservation() if answer.free_ids is not None:
            answer = answer._replace(free_ids=sorted(answer.free_ids))
    match answer:
        case Observation():
            return answer._replace(reserved=tuple(sorted(answer.reserved)))
        case StoreObservation():
            refs = None if answer.refs is None else dict(sorted(answer.refs.items()))
            return answer._replace(entries=dict(sorted(answer.entries.items())), refs=refs)
        case Staged() if answer.evicted is not None:
            return answer._replace(evicted=sorted(answer.evicted))
        case Reserved():
            return Reserved(sorted(answer.copies))
        case ScheduledStep():
            mapping = {name: sorted(getattr(answer, name)) for name in ("swap_in", "swap_out", "copies")}
            return answer._replace(**mapping)
        case list() | tuple() if call in (*SWAPS, *EVICTIONS):
            return sorted(answer)
    return answer


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
