"""Names, error classes and orders on which code that is written against V0 relies."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.impl import (
    BlockManager,
    BlockTable,
    CpuGpuBlockAllocator,
    Device,
    NaiveBlock,
    NaiveBlockAllocator,
    PrefixCachingBlock,
    PrefixCachingBlockAllocator,
    RefCounter,
    SequenceGroup,
    SequenceStatus,
)

Make = Callable[..., SequenceGroup]


def test_a_refcount_below_zero_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="block 3"):
        RefCounter([3]).decr(3)


def test_counts_and_free_ids_are_found_by_their_private_names() -> None:
    allocator = PrefixCachingBlockAllocator(3, 2)
    allocator.allocate_mutable_block(None)
    assert allocator._refcounter._refcounts == {0: 1, 1: 0, 2: 0}
    assert list(allocator._hashless_allocator._free_block_indices) == [1, 2]
    assert [tracker.active for tracker in allocator._block_tracker.values()] == [True, False, False]


def test_a_cached_block_is_found_by_its_hash_and_in_the_evictor() -> None:
    allocator = PrefixCachingBlockAllocator(3, 2)
    block = allocator.allocate_immutable_block(None, [7, 8])
    content_hash = block.content_hash
    assert (allocator._cached_blocks, dict(allocator.evictor.free_table)) == ({content_hash: 0}, {})
    allocator.free(block)
    assert (allocator._cached_blocks, list(allocator.evictor.free_table)) == ({content_hash: 0}, [0])


def test_a_block_freed_before_its_step_ran_is_found_again_and_is_no_hit_until_its_step_ran() -> None:
    allocator = PrefixCachingBlockAllocator(3, 2)
    first = allocator.allocate_immutable_block(None, [7, 8])
    content_hash = first.content_hash
    allocator.free(first)
    allocator.mark_blocks_as_computed([])
    assert allocator.find_cached_blocks_prefix([content_hash]) == []
    again = allocator.allocate_immutable_block(None, [7, 8])
    assert (again.block_id, again.computed) == (0, False)
    allocator.mark_blocks_as_computed([])
    assert allocator.find_cached_blocks_prefix([content_hash]) == [content_hash]


def test_blocks_freed_before_their_step_ran_are_evicted_oldest_access_first() -> None:
    allocator = PrefixCachingBlockAllocator(2, 1)
    old, new = (allocator.allocate_immutable_block(None, [token]) for token in (7, 8))
    allocator.mark_blocks_as_accessed([old.block_id], 1)
    allocator.mark_blocks_as_accessed([new.block_id], 2)
    for block in (new, old):
        allocator.free(block)
    assert allocator.allocate_mutable_block(None).block_id == 0


@pytest.mark.parametrize(
    ("before", "is_defined"), [(42, True), (None, False), (hash("None"), False)], ids=["hash", "none", "hash of none"]
)
def test_the_block_before_may_be_of_another_class(before: Any, is_defined: bool) -> None:
    foreign: Any = SimpleNamespace(content_hash=before)
    block = PrefixCachingBlock(foreign, [1, 2], 2, PrefixCachingBlockAllocator(1, 2))
    expected = PrefixCachingBlock.hash_block_tokens(False, before, [1, 2]) if is_defined else None
    assert block.content_hash is expected


def test_only_full_blocks_count_as_touched_by_a_swap() -> None:
    allocator = NaiveBlockAllocator(NaiveBlock, 2, 2)
    full = allocator.allocate_immutable_block(None, [1, 2])
    partial = allocator.allocate_immutable_block(full, [3])
    assert allocator.get_num_full_blocks_touched([full, partial]) == 1


def test_a_table_shows_all_its_tokens() -> None:
    table = BlockTable(2, CpuGpuBlockAllocator.create("naive", 4, 0, 2))
    table.allocate([1, 2, 3])
    assert table._get_all_token_ids() == [1, 2, 3]


def test_a_block_table_looked_up_before_a_swap_shows_what_was_moved(make_group: Make) -> None:
    manager, group = BlockManager(2, 4, 4, watermark=0), make_group([1, 2, 3])
    seq = group.get_seqs()[0]
    manager.allocate(group)
    seq.status = SequenceStatus.RUNNING
    before = manager.get_block_table(seq)
    assert manager.swap_out(group) == list(zip(before, [0, 1], strict=True))
    assert list(manager.block_tables) == [seq.seq_id]
    assert manager.get_num_free_gpu_blocks() == len(manager.free_ids(Device.GPU)) == 4
