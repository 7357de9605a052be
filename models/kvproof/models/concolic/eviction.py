"""`LRUEvictor`, for up to four blocks with any ids, access times and numbers of hashed tokens.

The invariant: each evictable block has one rank, and that very tuple is once in the queue, in the heap or in the list
of tuples that wait to be put there; every other tuple in them is stale; the queue is in order, and the heap is a heap.
A shape states how many tuples there are and where: `01` are the ranks of blocks 0 and 1, `x` is a stale tuple, `=` a
stale tuple equal to the one before. All numbers are arbitrary; ids that the evictor uses as keys are distinct. Times
are integers here, because the evictor only compares them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kvproof.impl.errors import InvalidValueError, UnknownBlockError
from kvproof.impl.evictor import STALE_RANKS_PER_BLOCK_MAX, LRUEvictor
from kvproof.models.concolic.scenario import Claim, Inputs, Outcome, Scenario, Step
from kvproof.models.concolic.symbolic import both, chosen, either, equal, implies, negated, same_truth

STALE, EQUAL = "x", "="
Rank = tuple[Any, Any, Any]
Shape = tuple[str, str, str]  # queue, heap, waiting


@dataclass(frozen=True)
class Entry:
    """An evictable block."""

    block: Any
    rank: Rank
    content: Any


@dataclass(frozen=True)
class Blocks:
    """An evictor in any state that satisfies the invariant, and its evictable blocks."""

    evictor: Any
    entries: list[Entry]


def _evictor(inputs: Inputs, subject: Any, shape: Shape, absent: Sequence[Entry] = ()) -> Blocks:
    """An evictor of this shape. The blocks of `absent` are not in it, and are distinct."""
    evictor = subject()
    entries: list[Entry] = []
    parts = ("queue", evictor._queue), ("heap", evictor._heap), ("waiting", evictor._waiting)
    for (part_name, part), kinds in zip(parts, shape, strict=True):
        for place, kind in enumerate(kinds):
            if kind == EQUAL:
                part.append((*part[-1],))  # an equal tuple, but another object: the evictor compares identities
                continue
            name = f"stale_{part_name}_{place}" if kind == STALE else kind
            block = inputs.identifier(f"block_{name}")
            rank = (inputs.integer(f"time_{name}"), inputs.integer(f"depth_{name}"), block)
            part.append(rank)
            if kind != STALE:
                entries.append(Entry(block, rank, inputs.integer(f"content_{name}")))
    every = [*entries, *absent]
    inputs.assume(lambda: both(negated(a.block == b.block) for n, a in enumerate(every) for b in every[:n]))
    inputs.assume(lambda: _is_in_order(evictor))
    for entry in entries:
        evictor._ranks[entry.block] = entry.rank
        evictor._contents[entry.block] = entry.content
    return Blocks(evictor, entries)


def _precedes(one: Rank, other: Rank) -> Any:
    """Whether a rank is smaller than another, or equal."""
    (time, depth, block), (other_time, other_depth, other_block) = one, other
    is_smaller_depth = either((depth < other_depth, both((equal(depth, other_depth), block <= other_block))))
    return either((time < other_time, both((equal(time, other_time), is_smaller_depth))))


def _is_in_order(evictor: Any) -> Any:
    queue, heap = evictor._queue, evictor._heap
    return both(
        [
            *(_precedes(one, other) for one, other in pairwise(queue)),
            *(_precedes(heap[(place - 1) // 2], heap[place]) for place in range(1, len(heap))),
        ]
    )


def _is_sound(evictor: Any) -> Any:
    """The invariant."""
    listed = [*evictor._queue, *evictor._heap, *evictor._waiting]
    return both(
        [
            *(equal(rank[2], block) for block, rank in evictor._ranks.items()),
            *(sum(entry is rank for entry in listed) == 1 for rank in evictor._ranks.values()),
            _is_in_order(evictor),
        ]
    )


def _has(entries: list[Entry], evictor: Any) -> Iterator[Claim]:
    """Claims: the evictor has exactly these blocks, each with its rank and content."""
    ranks, contents = list(evictor._ranks.items()), list(evictor._contents.items())
    yield Claim(
        "each block that should be here is, with its rank", both(_is_among(e.block, e.rank, ranks) for e in entries)
    )
    yield Claim("each has its content", both(_is_among(e.block, e.content, contents) for e in entries))
    yield Claim("no other block is here", len(ranks) == len(contents) == evictor.num_blocks == len(entries))
    yield Claim("queue, heap, ranks and contents agree", _is_sound(evictor))


def _is_among(key: Any, value: Any, items: list[tuple[Any, Any]]) -> Any:
    is_identical = any(key is one and value is other for one, other in items)
    return is_identical or either(both((equal(key, one), equal(value, other))) for one, other in items)


def _added(entries: list[Entry], new: Entry) -> list[Entry]:
    """The blocks after adding one, which may replace one of them: the path has decided that."""
    return [*(entry for entry in entries if entry.block != new.block), new]


def _without(entries: list[Entry], block: Any) -> list[Entry]:
    return [entry for entry in entries if entry.block != block]


def _add(inputs: Inputs, subject: Any, queue: str, heap: str, waiting: str) -> Step:
    blocks = _evictor(inputs, subject, (queue, heap, waiting))
    block, time, tokens = inputs.identifier("block"), inputs.integer("time"), inputs.integer("tokens")
    content = inputs.integer("content")

    def claims(outcome: Outcome) -> Iterator[Claim]:
        yield from _has(_added(blocks.entries, Entry(block, (time, -tokens, block), content)), blocks.evictor)
        yield _few_are_stale(blocks.evictor)

    return Step(lambda: blocks.evictor.add(block, content, tokens, time), claims)


def _few_are_stale(evictor: Any) -> Claim:
    num_listed = len(evictor._queue) + len(evictor._heap) + len(evictor._waiting)
    return Claim("stale tuples stay few", num_listed <= STALE_RANKS_PER_BLOCK_MAX * len(evictor._ranks))


def _two_new(inputs: Inputs) -> list[Entry]:
    new = []
    for name in ("new_0", "new_1"):
        block = inputs.identifier(f"block_{name}")
        rank = (inputs.integer(f"time_{name}"), inputs.integer(f"depth_{name}"), block)
        new.append(Entry(block, rank, inputs.integer(f"content_{name}")))
    return new


def _add_all(inputs: Inputs, subject: Any, queue: str, heap: str, waiting: str) -> Step:
    """A batch of two blocks that are not here yet, and then a call that needs their ranks."""
    new = _two_new(inputs)
    blocks = _evictor(inputs, subject, (queue, heap, waiting), new)
    entries = [*blocks.entries, *new]

    def claims(outcome: Outcome) -> Iterator[Claim]:
        yield from _has(entries, blocks.evictor)
        yield _few_are_stale(blocks.evictor)

    described = [entry.rank for entry in new], [entry.content for entry in new]
    block_ids = [entry.block for entry in new]
    return Step(lambda: (blocks.evictor.add_all(block_ids, lambda _: described), blocks.evictor.free_table), claims)


def _update(inputs: Inputs, subject: Any, queue: str, heap: str, waiting: str) -> Step:
    blocks = _evictor(inputs, subject, (queue, heap, waiting))
    block, time = inputs.identifier("block"), inputs.integer("time")

    def claims(outcome: Outcome) -> Iterator[Claim]:
        is_here = either(equal(entry.block, block) for entry in blocks.entries)
        yield Claim("a block is refused exactly if it is not here", same_truth(outcome.error is None, is_here))
        changed = [
            Entry(e.block, (chosen(e.block == block, time, e.rank[0]), e.rank[1], e.block), e.content)
            for e in blocks.entries
        ]
        yield from _has(changed, blocks.evictor)

    return Step(lambda: blocks.evictor.update(block, time), claims, (UnknownBlockError,))


def _remove(inputs: Inputs, subject: Any, queue: str, heap: str, waiting: str) -> Step:
    blocks = _evictor(inputs, subject, (queue, heap, waiting))
    block = inputs.identifier("block")

    def claims(outcome: Outcome) -> Iterator[Claim]:
        is_here = either(equal(entry.block, block) for entry in blocks.entries)
        yield Claim("a block is refused exactly if it is not here", same_truth(outcome.error is None, is_here))
        yield from _has(_without(blocks.entries, block), blocks.evictor)

    return Step(lambda: blocks.evictor.remove(block), claims, (UnknownBlockError,))


def _evict(inputs: Inputs, subject: Any, queue: str, heap: str, waiting: str) -> Step:
    blocks = _evictor(inputs, subject, (queue, heap, waiting))

    def claims(outcome: Outcome) -> Iterator[Claim]:
        yield Claim("it refuses exactly if no block is here", (outcome.error is None) == bool(blocks.entries))
        if outcome.error:
            yield from _has(blocks.entries, blocks.evictor)
            return
        block, content = outcome.value
        candidates = [entry for entry in blocks.entries if entry.block is block] or blocks.entries
        is_first = both(implies(equal(e.block, block), _is_first(e, blocks.entries)) for e in candidates)
        yield Claim("the block given up is the first in order", is_first)
        known = [(e.block, e.content) for e in blocks.entries]
        yield Claim("it is a block that was here, with its content", _is_among(block, content, known))
        yield from _has(_without(blocks.entries, block), blocks.evictor)

    return Step(blocks.evictor.evict, claims, (InvalidValueError,))


def _is_first(entry: Entry, entries: list[Entry]) -> Any:
    return both(_precedes(entry.rank, other.rank) for other in entries if other is not entry)


def _look(inputs: Inputs, subject: Any, queue: str, heap: str, waiting: str) -> Step:
    blocks = _evictor(inputs, subject, (queue, heap, waiting))
    block, evictor = inputs.identifier("block"), blocks.evictor

    def claims(outcome: Outcome) -> Iterator[Claim]:
        is_in, order, table = outcome.value
        is_here = either(equal(entry.block, block) for entry in blocks.entries)
        yield Claim("a block is found exactly if it is here", same_truth(is_in, is_here))
        ranks = [table[block_id] for block_id in order]
        ordered = [_precedes(one, other) for one, other in pairwise(ranks)]
        yield Claim("the blocks are given in order of eviction", both([*ordered, len(order) == len(blocks.entries)]))
        yield from _has(blocks.entries, evictor)

    return Step(lambda: (block in evictor, list(evictor.in_order()), evictor.free_table), claims)


def _clear(inputs: Inputs, subject: Any, queue: str, heap: str, waiting: str) -> Step:
    blocks = _evictor(inputs, subject, (queue, heap, waiting))

    def claims(outcome: Outcome) -> Iterator[Claim]:
        yield from _has([], blocks.evictor)
        yield Claim("no tuple is left", not (blocks.evictor._queue or blocks.evictor._heap or blocks.evictor._waiting))

    return Step(blocks.evictor.clear, claims)


def _shapes(*shapes: Shape) -> dict[str, Shape]:
    return {
        f"queue {queue or 'empty'}, heap {heap or 'empty'}, waiting {waiting or 'none'}": (queue, heap, waiting)
        for queue, heap, waiting in shapes
    }


_UP_TO_THREE: tuple[Shape, ...] = (
    ("", "", ""),
    ("", "", "0"),
    ("0", "", ""),
    ("", "0", ""),
    ("01", "", ""),
    ("", "01", ""),
    ("0", "1", ""),
    ("0", "", "1"),
    ("", "0", "1"),
    ("012", "", ""),
    ("", "012", ""),
    ("01", "2", ""),
    ("0", "12", ""),
    ("01", "", "2"),
    ("0", "1", "2"),
    ("0", "", "12"),
    ("", "", "012"),
)
_FOUR: tuple[Shape, ...] = (("0123", "", ""), ("", "0123", ""), ("01", "23", ""), ("012", "", "3"), ("", "012", "3"))
_WITH_STALE: tuple[Shape, ...] = (
    ("x", "", "0"),
    ("", "x", "0"),
    ("0", "", "x"),
    ("x0", "", "1"),
    ("0x", "1", ""),
    ("0", "x", "1"),
    ("0===", "", "1"),
    ("", "0===", "1"),
)
_SOME = _shapes(("", "", ""), ("0", "", ""), ("", "0", ""), ("", "", "0"), ("0x", "1", "2"), ("0", "1", "23"))
_MANY_STALE = {"queue of many stale": ("0" + EQUAL * (3 * STALE_RANKS_PER_BLOCK_MAX), "", "")}

SCENARIOS = (
    Scenario("LRUEvictor.add", "lists-agree", LRUEvictor, _add, _SOME | _MANY_STALE),
    Scenario("LRUEvictor.add_all", "lists-agree", LRUEvictor, _add_all, _SOME | _MANY_STALE),
    Scenario("LRUEvictor.update", "lists-agree", LRUEvictor, _update, _SOME),
    Scenario("LRUEvictor.remove", "evict-unreferenced", LRUEvictor, _remove, _SOME),
    Scenario(
        "LRUEvictor.evict",
        "evict-unreferenced",
        LRUEvictor,
        _evict,
        _shapes(*_UP_TO_THREE, *_FOUR, *_WITH_STALE),
    ),
    Scenario("LRUEvictor.in_order", "lists-agree", LRUEvictor, _look, _shapes(("", "", ""), ("0", "1", "2"))),
    Scenario("LRUEvictor.clear", "lists-agree", LRUEvictor, _clear, _shapes(("01x", "2", "3"))),
)

# Shapes with up to a thousand paths, for the long tests: blocks in many possible orders, also with stale tuples.
LONG_SCENARIOS = (
    Scenario(
        "LRUEvictor.evict",
        "evict-unreferenced",
        LRUEvictor,
        _evict,
        _shapes(
            ("", "", "0123"),
            ("0", "", "123"),
            ("01", "", "23"),
            ("01", "2", "3"),
            ("0123", "", "4"),
            ("0123", "x", "x"),
        ),
    ),
)
