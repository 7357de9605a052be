"""`RefCounter` and `CopyOnWriteTracker`, for four blocks with any counts, and any block id."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from kvproof.impl.errors import DoubleFreeError, InvalidValueError, ReadOnlyError, UnknownBlockError
from kvproof.impl.vllm_api.refcount import CopyOnWriteTracker, ReadOnlyRefCounter, RefCounter
from kvproof.models.concolic.scenario import Claim, Inputs, Outcome, Scenario, Step
from kvproof.models.concolic.symbolic import at, both, chosen, equal, negated, same_truth

NUM_BLOCKS = 4


def _counts(inputs: Inputs) -> list[Any]:
    return [inputs.count(f"count_{block}") for block in range(NUM_BLOCKS)]


def _is_counted(block: Any) -> Any:
    return both((block >= 0, block < NUM_BLOCKS))


def _counting(inputs: Inputs, subject: Any, change: int) -> Step:
    """A call of `get`, `incr` or `decr` on any block id; the counts are all at least 0 before and after."""
    counts = _counts(inputs)
    block = inputs.integer("block")
    counter = subject(range(NUM_BLOCKS), counts)
    before = list(counts)
    count = at(before, block)
    after = [chosen(block == place, old + change, old) for place, old in enumerate(before)]
    call = {0: counter.get, 1: counter.incr, -1: counter.decr}[change]

    def claims(outcome: Outcome) -> Iterator[Claim]:
        is_unknown, is_double = outcome.raised(UnknownBlockError), outcome.raised(DoubleFreeError)
        yield Claim(
            "an id is refused exactly if it is not counted", same_truth(is_unknown, negated(_is_counted(block)))
        )
        is_below = both((_is_counted(block), count + change < 0))
        yield Claim("a reference is refused exactly if nobody holds it", same_truth(is_double, is_below))
        yield Claim("no count is negative", both(value >= 0 for value in counts))
        if outcome.error:
            yield Claim("a refused call changes nothing", equal(counts, before))
        else:
            yield Claim("the count of that block changes, and no other", equal(counts, after))
            yield Claim("the count that now holds is returned", outcome.value == count + change)

    return Step(lambda: call(block), claims, (UnknownBlockError, DoubleFreeError))


def _set_of_ids(inputs: Inputs, subject: Any) -> Step:
    """A counter with its own counts, over ids that are not a range. All counts are 0 before."""
    ids = [3, 5, 8, 13]
    counter = subject(ids)
    block = inputs.below("block", 15)

    def call() -> Any:
        return counter.incr(block), counter.get(block), counter._refcounts

    def claims(outcome: Outcome) -> Iterator[Claim]:
        is_known = count_is_known(block, ids)
        yield Claim("an id is refused exactly if it is not counted", same_truth(outcome.error is None, is_known))
        if outcome.error is None:
            new, read, copy = outcome.value
            yield Claim("the count goes from 0 to 1, and is read back", both((new == 1, read == 1)))
            yield Claim("no other count changes", both(copy[i] == chosen(block == i, 1, 0) for i in ids))
            yield Claim("exactly the given ids are counted", set(copy) == set(ids))

    return Step(call, claims, (UnknownBlockError,))


def count_is_known(block: Any, ids: list[int]) -> Any:
    return negated(both(block != i for i in ids))


def _read_only(inputs: Inputs, subject: Any, name: str) -> Step:
    """The view reads the same counts as the counter, and cannot change them."""
    counts = _counts(inputs)
    before, block = list(counts), inputs.below("block", NUM_BLOCKS)
    view = subject(RefCounter(range(NUM_BLOCKS), counts))

    def claims(outcome: Outcome) -> Iterator[Claim]:
        yield Claim("nothing changes", equal(counts, before))
        yield Claim("only reading is allowed", outcome.raised(ReadOnlyError) == (name != "get"))
        if name == "get":
            yield Claim("the count is read", outcome.value == at(before, block))

    return Step(lambda: getattr(view, name)(block), claims, (ReadOnlyError,))


def _view(inputs: Inputs, subject: Any) -> Step:
    """A view shows later changes of its counter."""
    counts = _counts(inputs)
    block = inputs.below("block", NUM_BLOCKS)
    counter = subject(range(NUM_BLOCKS), counts)
    view = counter.as_readonly()

    def claims(outcome: Outcome) -> Iterator[Claim]:
        yield Claim("the view reads the new count", view.get(block) == outcome.value)

    return Step(lambda: counter.incr(block), claims)


def _is_appendable(inputs: Inputs, subject: Any, has_id: bool) -> Step:
    counts = _counts(inputs)
    block = inputs.below("block", NUM_BLOCKS)
    tracker = subject(RefCounter(range(NUM_BLOCKS), counts).as_readonly())

    def claims(outcome: Outcome) -> Iterator[Claim]:
        expected = at(counts, block) <= 1 if has_id else True
        yield Claim(
            "a block is written in place exactly if no second holder is counted", same_truth(outcome.value, expected)
        )

    return Step(lambda: tracker.is_appendable(SimpleNamespace(block_id=block if has_id else None)), claims)


def _record(inputs: Inputs, subject: Any, has_source: bool, has_target: bool) -> Step:
    """Record a copy after two others, and take the list."""
    tracker = subject(RefCounter(range(NUM_BLOCKS)).as_readonly())
    earlier = [(inputs.integer(f"source_{i}"), inputs.integer(f"target_{i}")) for i in range(2)]
    tracker._copies = list(earlier)
    source = inputs.integer("source") if has_source else None
    target = inputs.integer("target") if has_target else None

    def claims(outcome: Outcome) -> Iterator[Claim]:
        is_complete = has_source and has_target
        copies = [*earlier, (source, target)] if is_complete else earlier
        yield Claim("a copy is refused exactly if an id is missing", outcome.raised(InvalidValueError) != is_complete)
        yield Claim("the copies are given in the order of recording", equal(tracker.clear_cows(), copies))
        yield Claim("a copy is given once", tracker.clear_cows() == [])

    return Step(lambda: tracker.record_cow(source, target), claims, (InvalidValueError,))


def _clear(inputs: Inputs, subject: Any) -> Step:
    tracker = subject(RefCounter(range(NUM_BLOCKS)).as_readonly())
    copies = [(inputs.integer(f"source_{i}"), inputs.integer(f"target_{i}")) for i in range(2)]
    tracker._copies = list(copies)

    def claims(outcome: Outcome) -> Iterator[Claim]:
        yield Claim("the copies are given in the order of recording", equal(outcome.value, copies))
        yield Claim("none is left", tracker._copies == [])

    return Step(tracker.clear_cows, claims)


SCENARIOS = (
    Scenario("RefCounter.get", "refcount-exact", RefCounter, partial(_counting, change=0)),
    Scenario("RefCounter.incr", "refcount-exact", RefCounter, partial(_counting, change=1)),
    Scenario("RefCounter.decr", "no-double-free", RefCounter, partial(_counting, change=-1)),
    Scenario("RefCounter.as_readonly", "refcount-exact", RefCounter, _view),
    Scenario("RefCounter over a set of ids", "refcount-exact", RefCounter, _set_of_ids),
    Scenario(
        "ReadOnlyRefCounter",
        "refcount-exact",
        ReadOnlyRefCounter,
        _read_only,
        {name: (name,) for name in ("get", "incr", "decr")},
    ),
    Scenario(
        "CopyOnWriteTracker.is_appendable",
        "cow-copied",
        CopyOnWriteTracker,
        _is_appendable,
        {"with an id": (True,), "without an id": (False,)},
    ),
    Scenario(
        "CopyOnWriteTracker.record_cow",
        "cow-copied",
        CopyOnWriteTracker,
        _record,
        {"both ids": (True, True), "no source": (False, True), "no target": (True, False)},
    ),
    Scenario("CopyOnWriteTracker.clear_cows", "cow-copied", CopyOnWriteTracker, _clear),
)
