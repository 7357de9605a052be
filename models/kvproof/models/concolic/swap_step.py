"""`swapping.move`: tables of a device with four blocks move to another device with four, with any counts.

The source has the ids 0 to 3 and the target 4 to 7, both with a sound free list. A shape states which blocks the
tables name (`01 02`: two tables that share block 0; `-` is an entry that the sliding window left), how many ids of the
target are free, and which blocks were the target of another move of this step. Which ids are free is arbitrary, and so
are all counts, as long as each block is held by the tables that name it, the null blocks, and the numbers of blocks
that are kept. A step has landing places that nobody may take unless the target is idle: every block that tables can
have is free.
"""

from collections.abc import Iterator
from typing import Any

from kvproof.impl.device_blocks import NO_NULL_BLOCK, DeviceBlocks
from kvproof.impl.errors import NoFreeBlocksError
from kvproof.impl.swapping import move
from kvproof.impl.table import Table
from kvproof.models.concolic.frame import Frame
from kvproof.models.concolic.scenario import Claim, Inputs, Outcome, Scenario, Step
from kvproof.models.concolic.symbolic import at, both, chosen, count_of, either, equal, negated, same_truth

SOURCE, TARGET = range(4), range(4, 8)
CONTENTS = ("DeviceBlocks.refcounts", "DeviceBlocks.free_ids")  # what the claims are about
NULL = 9  # the null block of the source, in entries that the window left


def is_sound(blocks: Any) -> Any:
    """The invariant of a device whose ids are a range: the free list is exact, and the null block is held."""
    free, counts, ids = list(blocks.free_ids), blocks.refcounts, blocks.ids
    null_is_held = both((is_among(blocks.null_id, ids), at(counts, blocks.null_id) > 0))
    return both(
        [
            *(is_among(block, ids) for block in free),
            *(negated(equal(one, other)) for place, one in enumerate(free) for other in free[:place]),
            *(same_truth(counts[block] == 0, either(equal(one, block) for one in free)) for block in ids),
            *(count >= 0 for count in counts),
            either((equal(blocks.null_id, NO_NULL_BLOCK), null_is_held)),
        ]
    )


def is_among(block: Any, ids: range) -> Any:
    return both((block >= ids.start, block < ids.stop))


def _move(inputs: Inputs, subject: Any, names: str, num_free: int, landed: set[int]) -> Step:
    counts = [inputs.count(f"count_{block}") for block in range(TARGET.stop)]
    source, target = DeviceBlocks("the source", SOURCE, counts), DeviceBlocks("the target", TARGET, counts)
    tables = [_table(inputs, number, name) for number, name in enumerate(names.split())]
    held = [block for table in tables for block in table.held_ids()]
    free = [inputs.integer(f"free_{place}") for place in range(num_free)]
    source.free_ids.clear()
    target.free_ids.clear()
    target.free_ids.extend(free)
    for device in (source, target):
        device.num_kept, device.null_id = inputs.count(f"kept_{device.name}"), inputs.integer(f"null_{device.name}")
    inputs.assume(lambda: both((is_sound(source), is_sound(target))))
    inputs.assume(lambda: both(counts[block] >= held.count(block) for block in SOURCE))
    inputs.assume(lambda: negated(either(equal(block, source.null_id) for block in held)))
    before, ids_before = list(counts), [list(table.ids) for table in tables]
    frame = Frame(source, target, *tables, changes=CONTENTS, replaced=("Table.ids", "Table.writable_slots"))

    def claims(outcome: Outcome) -> Iterator[Claim]:
        distinct = list(dict.fromkeys(held))
        num_usable = len(TARGET) - target.num_kept - chosen(equal(target.null_id, NO_NULL_BLOCK), 0, 1)
        is_busy = negated(equal(num_usable, num_free))
        is_back = {block: both((is_busy, either(equal(one, block) for one in free))) for block in landed}
        num_left = num_free - sum((1 if is_free else 0) for is_free in is_back.values())
        yield Claim("it refuses exactly if too few are free", (outcome.error is not None) == (len(distinct) > num_left))
        if outcome.error:
            yield Claim("a refused swap changes no count", equal(counts, before))
            is_same = both((equal(list(target.free_ids), free), not source.free_ids))
            yield Claim("a refused swap changes no free list", is_same)
            yield Claim("a refused swap changes no table", [table.ids for table in tables] == ids_before)
            yield Claim("nothing else has changed", frame.holds())
            return
        mapping = outcome.value
        new = list(mapping.values())
        yield Claim("each block moves once, in the order of first mention", list(mapping) == distinct)
        yield Claim("no two blocks get one place", both(negated(a == b) for n, a in enumerate(new) for b in new[:n]))
        yield Claim("every place was free", both(either(equal(block, one) for one in free) for block in new))
        is_taken = [both((is_free, equal(block, place))) for place, is_free in is_back.items() for block in new]
        yield Claim("no landing place of this step is taken", negated(either(is_taken)))
        moved = [mapping[block] for block in held]
        yield Claim(
            "references move with the tables",
            both(
                counts[block] == before[block] + count_of(block, moved) - count_of(block, held)
                for block in range(TARGET.stop)
            ),
        )
        expected = [[mapping.get(block, NULL) for block in ids] for ids in ids_before]
        yield Claim("each table names the new blocks", equal([table.ids for table in tables], expected))
        yield Claim("no table writes unseen", all(table.writable_slots == 0 for table in tables))
        yield Claim("both free lists stay exact", both((is_sound(source), is_sound(target))))
        yield Claim("nothing else has changed", frame.holds())

    return Step(lambda: subject(tables, source, target, landed), claims, (NoFreeBlocksError,))


def _table(inputs: Inputs, number: int, name: str) -> Table:
    table = Table([NULL if entry == "-" else int(entry) for entry in name], inputs.count(f"tokens_{number}"))
    for field in ("quiet_tokens", "num_hit_blocks", "num_marked_blocks", "last_accessed"):
        setattr(table, field, inputs.integer(f"{field}_{number}"))
    table.num_dropped, table.writable_slots = name.count("-"), len(name)
    return table


def _shapes(*shapes: tuple[str, int, set[int]]) -> dict[str, tuple[Any, ...]]:
    return {
        f"tables {names}, {num_free} free" + (f", landed {sorted(landed)}" if landed else ""): (names, num_free, landed)
        for names, num_free, landed in shapes
    }


SCENARIOS = (
    Scenario(
        "swapping.move",
        "swap-mapping",
        move,
        _move,
        _shapes(
            ("0", 0, set()),
            ("01", 2, set()),
            ("-1 1", 2, set()),
            ("012 012", 2, set()),
            ("01 02", 3, set()),
            ("0 1", 3, {4, 5}),
            ("0", 4, {6}),
        ),
    ),
)
