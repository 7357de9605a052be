"""Which rank keeps which part of the KV, and where the cells come from that a transfer writes."""

import pytest

from kvproof.check.oracle.pair.copies import sources_of
from kvproof.check.oracle.pair.shares import Shares, shares_of
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.pair import DECODE, PREFILL, Layer, PairConfig, Piece

FOUR = 4  # bytes of a head of a cell


def sides(prefill: int, decode: int, heads: int) -> list[Layer]:
    """The memory of one layer with ranks on both sides."""
    config = PairConfig(prefill_ranks=prefill, decode_ranks=decode, num_heads=heads)
    return [
        Layer(side, FOUR, rank, 0, config.heads(side, rank))
        for side in (PREFILL, DECODE)
        for rank in range(config.num_ranks(side))
    ]


def test_one_rank_on_each_side_has_one_share() -> None:
    assert shares_of(sides(1, 1, 1)) == Shares()
    assert shares_of(sides(1, 1, 2)).kinds == (((0, 0), (0, 1)),)


def test_a_share_is_what_no_rank_has_without_the_rest() -> None:
    found = shares_of(sides(1, 2, 4))
    assert found.kinds == (((0, 0), (0, 1)), ((0, 2), (0, 3)))
    assert found.places == (((0, 0), (0, 1)), ((0, 0), (1, 1)))


def test_a_rank_of_prefill_waits_for_each_rank_that_can_only_read_there() -> None:
    assert [shares_of(sides(1, 4, 4)).readers(rank) for rank in range(1)] == [(0, 1, 2, 3)]
    assert [shares_of(sides(2, 4, 4)).readers(rank) for rank in range(2)] == [(0, 1), (2, 3)]
    assert [shares_of(sides(4, 2, 4)).readers(rank) for rank in range(4)] == [(0,), (0,), (1,), (1,)]


def test_of_ranks_that_keep_the_same_nobody_knows_who_is_read() -> None:
    assert [shares_of(sides(2, 2, 0)).readers(rank) for rank in range(2)] == [(), ()]


def test_a_side_that_lacks_a_head_is_a_fault_of_the_adapter() -> None:
    with pytest.raises(AdapterError):
        shares_of([Layer(PREFILL, FOUR, 0, 0, (0, 1)), Layer(DECODE, FOUR, 0, 0, (0,))])


Cells = dict[tuple[int, int, int], dict[int, tuple[int, int]]]


def copied(source: int, target: int, length: int, **of_decode: int) -> Cells:
    """Where one copy takes cells: from rank 1 of two, with two heads, to the only rank of DECODE; blocks of 2 slots."""
    prefill = [Layer(PREFILL, FOUR, rank, 0, (2 * rank, 2 * rank + 1)) for rank in range(2)]
    decode = [Layer(DECODE, FOUR, 0, 0, (0, 1, 2, 3), **of_decode)]
    slots = 2, of_decode.get("arrival_slots", 0) * 2 or 2
    return sources_of([Piece((PREFILL, 1, source), (DECODE, 0, target), length)], (prefill, decode), slots, "read")


def test_a_copy_of_a_part_of_a_block_brings_the_heads_of_its_rank() -> None:
    block_one, third_head = 2 * 2 * FOUR, 2 * 4 * FOUR + 2 * 2 * FOUR  # of block 1 on DECODE
    assert copied(block_one, third_head, 4 * FOUR) == {
        (0, 0, 2): {2: (1, 2), 3: (1, 3)},
        (0, 0, 3): {2: (1, 2), 3: (1, 3)},
    }


def test_a_small_block_that_waits_to_be_put_in_order_is_taken_for_what_it_will_be() -> None:
    second_half = 2 * 4 * FOUR  # of block 0 on DECODE, which has 4 slots
    found = copied(0, second_half + 2 * 2 * FOUR, 2 * FOUR, arrival_slots=2)
    assert found == {(0, 0, 2): {2: (1, 0), 3: (1, 1)}}


def test_a_copy_to_the_place_of_another_head_is_refuted() -> None:
    with pytest.raises(Finding, match="head 2 is written to where that of head 0 is") as caught:
        copied(0, 0, FOUR)
    assert caught.value.property == "arrived-whole"
