"""Logical blocks, and the physical blocks of the two allocators of the first generation."""

from __future__ import annotations

import pytest

from kvproof.impl import (
    CachedBlockAllocator,
    Device,
    DoubleFreeError,
    InvalidValueError,
    LogicalTokenBlock,
    LogicalTokenBlocks,
    NoFreeBlocksError,
    Sequence,
    UncachedBlockAllocator,
    UnknownBlockError,
)

GPU, CPU = Device.GPU, Device.CPU


def test_a_logical_block_fills_up_to_its_room() -> None:
    block = LogicalTokenBlock(2, 4)
    assert (block.block_number, block.is_empty(), block.is_full()) == (2, True, False)
    assert block.token_ids == [-1, -1, -1, -1]
    block.append_tokens([7, 8, 9])
    assert (block.get_num_empty_slots(), block.get_token_ids(), block.get_last_token_id()) == (1, [7, 8, 9], 9)
    with pytest.raises(InvalidValueError, match="1 slots"):
        block.append_tokens([1, 2])
    assert block.token_ids == [7, 8, 9, -1]
    block.append_tokens([1])
    assert block.is_full()


def test_an_empty_logical_block_has_no_last_token() -> None:
    with pytest.raises(InvalidValueError):
        LogicalTokenBlock(0, 4).get_last_token_id()


def test_a_sequence_gets_a_logical_block_only_when_its_last_one_is_full() -> None:
    blocks = LogicalTokenBlocks(3)
    counts = []
    for token in range(7):
        blocks.append_tokens([token])
        counts.append(len(blocks))
    assert counts == [1, 1, 1, 2, 2, 2, 3]
    assert [block.get_token_ids() for block in blocks] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [block.block_number for block in blocks[1:]] == [1, 2]


def test_the_logical_blocks_of_a_sequence_follow_its_tokens() -> None:
    seq = Sequence(0, [1, 2, 3], 2)
    assert [block.get_token_ids() for block in seq.logical_token_blocks] == [[1, 2], [3]]
    seq.append_token_id(4)
    seq.append_token_id(5)
    assert [block.get_token_ids() for block in seq.logical_token_blocks] == [[1, 2], [3, 4], [5]]
    assert len(seq.fork(1).logical_token_blocks) == seq.n_blocks == 3


def test_an_uncached_allocator_is_a_stack() -> None:
    allocator = UncachedBlockAllocator(CPU, 4, 3)
    blocks = [allocator.allocate() for _ in range(3)]
    assert [block.ref_count for block in blocks] == [1, 1, 1]
    assert (allocator.get_num_free_blocks(), allocator.get_num_total_blocks()) == (0, 3)
    with pytest.raises(NoFreeBlocksError):
        allocator.allocate()
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    assert blocks[0] in allocator.free_blocks
    assert allocator.allocate() is blocks[2]
    assert allocator.allocate() is blocks[0]


def test_a_double_free_is_refused_and_changes_nothing() -> None:
    allocator = UncachedBlockAllocator(GPU, 4, 2)
    block = allocator.allocate()
    allocator.free(block)
    with pytest.raises(DoubleFreeError):
        allocator.free(block)
    assert (block.ref_count, allocator.get_num_free_blocks()) == (0, 2)


def test_a_block_of_another_allocator_is_refused() -> None:
    one, other = UncachedBlockAllocator(GPU, 4, 2), UncachedBlockAllocator(CPU, 4, 2)
    block = one.allocate()
    other.allocate()
    with pytest.raises(UnknownBlockError):
        other.free(block)


def test_an_uncached_allocator_does_not_look_content_up() -> None:
    allocator = UncachedBlockAllocator(GPU, 4, 2)
    block = allocator.allocate("a", 4)
    assert allocator.allocate("a", 4) is not block
    assert (block.block_hash, block.num_hashed_tokens, block.computed) == (None, 0, False)
    with pytest.raises(InvalidValueError):
        allocator.contains_block("a")
    with pytest.raises(InvalidValueError):
        allocator.update_hash("a", block)


def test_a_named_block_is_shared_and_found_after_its_last_reference_is_gone() -> None:
    allocator = CachedBlockAllocator(GPU, 4, 3)
    first = allocator.allocate("a", 4)
    assert allocator.allocate("a", 4) is first
    assert (first.ref_count, first.block_hash, first.num_hashed_tokens) == (2, "a", 4)
    allocator.free(first)
    allocator.free(first)
    assert (first.ref_count, allocator.get_num_free_blocks(), allocator.contains_block("a")) == (0, 3, True)
    assert allocator.evictor.num_blocks == 1
    assert allocator.allocate("a", 4) is first
    allocator.free(first)
    with pytest.raises(DoubleFreeError):
        allocator.free(first)


def test_ids_that_hold_nothing_go_before_evictable_ones_and_the_oldest_of_those_first() -> None:
    allocator = CachedBlockAllocator(GPU, 4, 3)
    blocks = [allocator.allocate(name, 4) for name in "ab"]
    for block, now in zip(blocks, (2.0, 1.0), strict=True):
        block.last_accessed = now
        allocator.free(block)
    assert allocator.allocate("c", 4) not in blocks
    assert allocator.allocate("d", 4) is blocks[1]
    assert (allocator.contains_block("a"), allocator.contains_block("b")) == (True, False)
    assert allocator.allocate("e", 4) is blocks[0]
    with pytest.raises(NoFreeBlocksError):
        allocator.allocate()


def test_among_equally_old_blocks_the_longest_prefix_is_evicted_first() -> None:
    allocator = CachedBlockAllocator(GPU, 4, 2)
    short, long = allocator.allocate("a", 4), allocator.allocate("b", 8)
    allocator.free(short)
    allocator.free(long)
    assert allocator.allocate("c", 4) is long


def test_a_block_taken_for_something_else_is_not_computed() -> None:
    allocator = CachedBlockAllocator(GPU, 4, 1)
    block = allocator.allocate("a", 4)
    block.computed = True
    allocator.free(block)
    assert allocator.allocate("a", 4).computed
    allocator.free(block)
    assert not allocator.allocate("b", 4).computed


def test_blocks_without_content_have_names_of_their_own_and_are_found_by_nobody() -> None:
    allocator = CachedBlockAllocator(GPU, 4, 2)
    one, other = allocator.allocate(), allocator.allocate()
    assert one.block_hash is not None
    assert one.block_hash != other.block_hash
    allocator.free(one)
    assert (allocator.evictor.num_blocks, allocator.get_num_free_blocks()) == (0, 1)


def test_a_block_that_becomes_full_gets_the_name_of_its_content() -> None:
    allocator = CachedBlockAllocator(GPU, 4, 2)
    block = allocator.allocate(None, 8)
    allocator.update_hash("a", block)
    assert (block.block_hash, block.num_hashed_tokens) == ("a", 8)
    assert allocator.allocate("a", 8) is block
    other = allocator.allocate()
    with pytest.raises(InvalidValueError):
        allocator.update_hash("a", other)


class Colliding:
    """A name whose hash is the same for all names."""

    def __init__(self, content: str) -> None:
        self.content = content

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colliding) and other.content == self.content


def test_equal_hashes_of_unequal_contents_do_not_share_a_block() -> None:
    allocator = CachedBlockAllocator(GPU, 4, 2)
    block = allocator.allocate(Colliding("a"), 4)
    assert not allocator.contains_block(Colliding("b"))
    assert allocator.allocate(Colliding("b"), 4) is not block
    assert allocator.allocate(Colliding("a"), 4) is block
