"""Tokens of a KV group in slots: what is read, and where it lies, is the same in both."""

from itertools import product

import pytest

from kvproof.spec.text.kv_groups import Layout
from kvproof.spec.text.state import first_read

LAYOUTS = [Layout(slots, tokens) for slots, tokens in product((1, 2, 4, 6, 12), (1, 2, 3, 6)) if slots % tokens == 0]
IN_PLACE = Layout(6, 1 << 20, is_state=True, is_in_place=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_token_lies_in_the_same_entry_and_first_reads_the_same_entry(layout: Layout) -> None:
    size, chunks = layout.num_tokens, [-layout.num_tokens * number for number in (1, 2, 3)]
    for position, reach in product(range(4 * size + 3), [*range(4 * size + 3), *chunks]):
        slot = layout.slots(position)
        assert slot // layout.num_slots == position // size
        first = first_read(slot, layout.window(reach)) // layout.num_slots
        assert first == first_read(position, reach) // size, (position, reach)


@pytest.mark.parametrize("layout", [*LAYOUTS, IN_PLACE])
def test_tokens_one_by_one_fill_the_slots_that_all_of_them_take(layout: Layout) -> None:
    slots: list[int] = []
    for position in range(3 * layout.num_slots):
        assert len(slots) == layout.slots(position)
        slots += layout.padded(position, position)
    if not layout.is_in_place:
        assert slots[layout.num_slots - 1] == layout.num_tokens - 1  # the last token of a block is in its last slot


@pytest.mark.parametrize(
    ("layout", "needed"),
    [
        (Layout(4, 4), [0, 1, 1, 1, 1, 2]),
        (Layout(4, 2), [0, 1, 1, 2, 2, 3]),
        (Layout(4, 4, is_state=True), [2] * 6),
        (IN_PLACE, [0, 1, 1, 1, 1, 1]),
    ],
)
def test_a_sequence_needs_so_many_blocks(layout: Layout, needed: list[int]) -> None:
    assert [layout.entries(num_tokens) for num_tokens in range(6)] == needed
