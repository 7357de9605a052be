"""Compare the pool that a subject shows with the specification: refcounts, free lists, counters, blocks set aside."""

from collections.abc import Callable

from kvproof.check.oracle.refinement import Explainer
from kvproof.check.protocol.finding import Finding, direction
from kvproof.spec.text import operations
from kvproof.spec.text.state import GPU, HOST, RESERVED, USED

DEVICE = ("GPU", "host")


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
    for pool in (GPU, HOST):
        unused = explainer.unused_in(state, pool)
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
    wrong = [block for block, refs_ in enumerate(refs) if not 0 <= refs_ - expected[block] <= pins[block]]
    for block in wrong[:1]:
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
