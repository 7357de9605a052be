"""Block objects, allocators, block tables and trackers, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.impl import (
    BlockPool,
    BlockTable,
    CacheMetricData,
    ComputedBlocksTracker,
    CopyOnWriteTracker,
    CpuGpuBlockAllocator,
    Device,
    DoubleFreeError,
    InvalidValueError,
    LastAccessBlocksTracker,
    LRUEvictor,
    NaiveBlock,
    NaiveBlockAllocator,
    NoFreeBlocksError,
    PrefixCachingBlock,
    PrefixCachingBlockAllocator,
    ReadOnlyError,
    RefCounter,
    SequenceGroup,
    UnknownBlockError,
)

GPU, CPU = Device.GPU, Device.CPU
Make = Callable[..., SequenceGroup]


def naive(num_blocks: int, block_size: int = 2) -> NaiveBlockAllocator:
    return NaiveBlockAllocator(NaiveBlock, num_blocks, block_size)


def test_a_count_never_falls_below_zero_and_a_view_cannot_change_it() -> None:
    counter = RefCounter([3, 5])
    assert [counter.incr(3), counter.incr(3), counter.decr(3)] == [1, 2, 1]
    view = counter.as_readonly()
    assert (view.get(3), view.get(5)) == (1, 0)
    with pytest.raises(DoubleFreeError, match="block 5"):
        counter.decr(5)
    with pytest.raises(UnknownBlockError):
        counter.get(4)
    for change in (view.incr, view.decr):
        with pytest.raises(ReadOnlyError, match="the refcount of block 3"):
            change(3)
    assert [counter.incr(3), view.get(3), counter._refcounts] == [2, 2, {3: 2, 5: 0}]


def test_a_block_with_one_holder_is_appendable_and_copies_are_returned_once() -> None:
    allocator = naive(4)
    tracker = CopyOnWriteTracker(allocator.refcounter)
    block = allocator.allocate_mutable_block(None)
    assert tracker.is_appendable(block)
    assert tracker.is_appendable(SimpleNamespace(block_id=None)), "no id yet"
    allocator.fork(block)
    assert not tracker.is_appendable(block)
    block.append_token_ids([1])
    assert allocator.clear_copy_on_writes() == [(0, 1)]
    assert allocator.clear_copy_on_writes() == []


@pytest.mark.parametrize("copy", [(None, 1), (1, None), (None, None)])
def test_a_copy_without_an_id_is_refused_and_copies_come_in_their_order(copy: tuple[int | None, int | None]) -> None:
    tracker = CopyOnWriteTracker(RefCounter(range(4)))
    tracker.record_cow(0, 3)
    with pytest.raises(InvalidValueError):
        tracker.record_cow(*copy)
    tracker.record_cow(2, 1)
    assert [tracker.clear_cows(), tracker.clear_cows()] == [[(0, 3), (2, 1)], []]


def test_a_pool_of_objects_doubles_and_refuses_foreign_objects() -> None:
    allocator = naive(1)
    make: Any = NaiveBlock
    pools: list[BlockPool[Any]] = [BlockPool(2, make, allocator, 2) for _ in range(2)]
    blocks = [pools[0].init_block(None, [], 2, None) for _ in range(3)]
    assert pools[0].pool_size == 4
    foreign = pools[1].init_block(None, [], 2, None)
    with pytest.raises(UnknownBlockError):
        pools[0].free_block(foreign)
    pools[0].free_block(blocks[0])
    with pytest.raises(UnknownBlockError):
        pools[0].free_block(blocks[0])


def test_ids_are_taken_from_the_left_and_given_back_to_the_left() -> None:
    allocator = naive(4)
    blocks = [allocator.allocate_mutable_block(None) for _ in range(2)]
    allocator.free(blocks[0])
    assert list(allocator.blocks.free_ids) == [0, 2, 3]
    with pytest.raises(UnknownBlockError):
        allocator.free(blocks[0])


def test_an_append_that_finds_no_block_changes_nothing() -> None:
    allocator = naive(1)
    block = allocator.allocate_mutable_block(None)
    allocator.fork(block)
    with pytest.raises(NoFreeBlocksError):
        block.append_token_ids([1])
    assert (block.token_ids, block.block_id, allocator.refcounter.get(0)) == ([], 0, 2)
    with pytest.raises(InvalidValueError, match="2 slots are empty"):
        block.append_token_ids([1, 2, 3])


def test_a_chain_that_does_not_fit_leaves_nothing_behind() -> None:
    for allocator in (naive(2), PrefixCachingBlockAllocator(2, 2)):
        with pytest.raises(NoFreeBlocksError):
            allocator.allocate_immutable_blocks(None, [[1, 2], [3, 4], [5, 6]])
        assert allocator.get_num_free_blocks() == 2


def test_equal_full_blocks_are_shared_and_hit_when_computed() -> None:
    allocator = PrefixCachingBlockAllocator(4, 2)
    one = allocator.allocate_immutable_block(None, [1, 2])
    two = allocator.allocate_immutable_block(None, [1, 2])
    assert one.block_id == two.block_id
    assert not two.computed
    assert allocator.find_cached_blocks_prefix([one.content_hash]) == []
    allocator.mark_blocks_as_computed([one.block_id])
    assert allocator.find_cached_blocks_prefix([one.content_hash]) == [one.content_hash]
    assert allocator.allocate_immutable_block(None, [1, 2]).computed
    assert allocator.allocate_immutable_block(None, [1, 2], extra_hash="adapter").block_id != one.block_id
    assert allocator.get_prefix_cache_hit_rate() == 0.5


def test_a_block_that_becomes_full_is_exchanged_only_for_a_computed_twin() -> None:
    allocator = PrefixCachingBlockAllocator(4, 2)
    first = allocator.allocate_immutable_block(None, [1, 2])
    for is_computed in (False, True):
        block = allocator.allocate_mutable_block(None)
        block.append_token_ids([1])
        block.append_token_ids([2])
        assert (block.block_id == first.block_id) == is_computed
        allocator.mark_blocks_as_computed([first.block_id])


def test_freed_blocks_stay_cached_until_fresh_ids_are_used_up_and_the_oldest_goes_first() -> None:
    allocator = PrefixCachingBlockAllocator(3, 1)
    chain = allocator.allocate_immutable_blocks(None, [[1], [2]])
    hashes = [block.content_hash for block in chain]
    allocator.mark_blocks_as_computed([])
    for block in chain:
        allocator.free(block)
    assert allocator.get_num_free_blocks() == 3
    assert allocator.allocate_mutable_block(None).block_id == 2
    assert allocator.find_cached_blocks_prefix(hashes) == hashes
    assert allocator.allocate_mutable_block(None).block_id == 1  # equal access: the longer prefix goes first
    assert allocator.find_cached_blocks_prefix(hashes) == hashes[:1]
    assert not allocator.reset_prefix_cache()


def test_a_content_hash_is_undefined_until_the_chain_is_full() -> None:
    allocator = PrefixCachingBlockAllocator(4, 2)
    first = allocator.allocate_mutable_block(None)
    second = allocator.allocate_mutable_block(first)
    second.append_token_ids([3, 4])
    assert second.content_hash is None
    first.append_token_ids([1, 2])
    name = PrefixCachingBlock.hash_block_tokens
    assert second.content_hash == name(False, name(True, None, [1, 2]), [3, 4])
    assert second.content_hash != name(True, None, [3, 4])


def test_the_evictor_takes_the_oldest_and_among_equals_the_longest_prefix() -> None:
    evictor = LRUEvictor()
    for block_id, num_tokens, time in ((1, 4, 2.0), (2, 8, 1.0), (3, 12, 1.0), (4, 4, 0.0)):
        evictor.add(block_id, block_id, num_tokens, time)
    evictor.update(4, 3.0)
    evictor.remove(1)
    assert 1 not in evictor
    assert [evictor.evict()[0] for _ in range(3)] == [3, 2, 4]
    with pytest.raises(InvalidValueError):
        evictor.evict()


def test_the_evictors_queue_stays_within_fifty_times_its_blocks() -> None:
    evictor = LRUEvictor()
    evictor.add(1, 1, 4, 0.0)
    for time in range(1000):
        evictor.update(1, float(time))
        assert len(evictor._queue) + len(evictor._heap) + len(evictor._waiting) <= 50


def test_the_hit_rate_is_over_completed_groups_and_the_current_one() -> None:
    metric = CacheMetricData()
    metric.query_many(1500, 1000)  # 1000 of 1000, then 0 of 500
    metric.query(True)
    assert metric.num_completed_blocks == 1
    assert metric.get_hit_rate() == pytest.approx(1001 / 1501)


def test_a_look_up_is_fixed_during_prefill_until_the_sequence_is_removed(make_group: Make) -> None:
    allocator = PrefixCachingBlockAllocator(4, 4)
    tracker = ComputedBlocksTracker(allocator, 4, True)
    seq = make_group(list(range(9))).seqs[0]
    assert tracker.get_num_cached_tokens(seq) == 0
    allocator.allocate_immutable_blocks(None, [[0, 1, 2, 3], [4, 5, 6, 7]])
    allocator.mark_blocks_as_computed([])
    assert tracker.get_num_cached_tokens(seq) == 0
    tracker.remove_seq(seq.seq_id)
    assert tracker.get_num_cached_tokens(seq) == 8
    seq.data.update_num_computed_tokens(9)
    assert tracker.get_num_cached_tokens(seq) == 8


def test_a_grown_sequence_is_looked_up_again_after_prefill(make_group: Make) -> None:
    allocator = PrefixCachingBlockAllocator(4, 4)
    tracker = ComputedBlocksTracker(allocator, 4, True)
    seq = make_group([0, 1, 2, 3]).seqs[0]
    assert tracker.get_num_cached_tokens(seq) == 0
    allocator.allocate_immutable_blocks(None, [[0, 1, 2, 3]])
    allocator.mark_blocks_as_computed([])
    seq.data.update_num_computed_tokens(4)
    assert tracker.get_num_cached_tokens(seq) == 4


def test_accesses_reach_the_blocks_when_they_are_flushed() -> None:
    allocator = PrefixCachingBlockAllocator(2, 1)
    tracker = LastAccessBlocksTracker(allocator)
    blocks = [allocator.allocate_immutable_block(None, [token]) for token in (1, 2)]
    allocator.mark_blocks_as_computed([])
    for seq_id, time in ((7, 9.0), (8, 5.0)):
        tracker.add_seq(seq_id)
        tracker.update_last_access(seq_id, time)
        tracker.update_seq_blocks_last_access(seq_id, [blocks[seq_id - 7].block_id])
    for block in blocks:
        allocator.free(block)
    assert allocator.allocate_mutable_block(None).block_id == 1


@pytest.mark.parametrize("kind", ["naive", "prefix_caching"])
def test_a_swapped_table_returns_with_its_sharing(kind: str) -> None:
    allocator = CpuGpuBlockAllocator.create(kind, 8, 8, 2)
    table = BlockTable(2, allocator)
    table.allocate([1, 2, 3])
    child = table.fork()
    both = table.blocks + child.blocks
    assert allocator.swap(both, GPU, CPU) == {0: 8, 1: 9}
    assert allocator.get_and_reset_swaps() == [(0, 0), (1, 1)]
    allocator.swap(both, CPU, GPU)
    for each in (table, child):
        each.update(each.blocks)
    assert table.physical_block_ids == child.physical_block_ids
    child.append_token_ids([4, 5])
    assert len(allocator.clear_copy_on_writes()) == 1
    table.free()
    child.free()
    assert (allocator.get_num_free_blocks(GPU), allocator.get_num_free_blocks(CPU)) == (8, 8)


def test_a_windowed_table_forks_and_frees_with_its_null_blocks() -> None:
    allocator = CpuGpuBlockAllocator.create("naive", 8, 0, 2)
    table = BlockTable(2, allocator, max_block_sliding_window=2)
    table.allocate([1] * 8)
    for position in range(8, 40):
        table.append_token_ids([1], 0, position)
    child = table.fork()
    child.append_token_ids([1], 1, 40)
    null = allocator.allocate_or_get_null_block()
    assert child.physical_block_ids[:18] == [null.block_id] * 18
    assert child.blocks[-1].prev_block.num_tokens_total + 1 >= 41
    with pytest.raises(ReadOnlyError):
        null.append_token_ids([1])
    table.free()
    child.free()
    assert allocator.get_num_free_blocks(GPU) == 7


def test_a_table_that_cannot_grow_is_unchanged() -> None:
    allocator = CpuGpuBlockAllocator.create("naive", 3, 0, 2)
    table = BlockTable(2, allocator)
    table.allocate([1, 2, 3])
    child = table.fork()
    with pytest.raises(NoFreeBlocksError, match="2 blocks needed on GPU, 1 free"):
        child.append_token_ids([4, 5], 1)
    assert (child.physical_block_ids, child.num_full_slots, allocator.get_num_free_blocks(GPU)) == ([0, 1], 3, 1)
    assert child.get_num_blocks_touched_by_append_slots([4, 5], 1) == 2
    assert list(child.get_unseen_token_ids([1, 2, 3, 4])) == [4]
    assert BlockTable.get_num_required_blocks([1, 2, 3], 2, 2) == 3


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidValueError, match="'bfc'"):
        CpuGpuBlockAllocator.create("bfc", 1, 1, 1)
    with pytest.raises(InvalidValueError, match="block_ids"):
        NaiveBlockAllocator(NaiveBlock, 2, 1, block_ids=[1, 1])
    allocator = CpuGpuBlockAllocator.create("naive", 2, 2, 1)
    with pytest.raises(UnknownBlockError, match="7"):
        allocator.get_physical_block_id(GPU, 7)
    assert allocator.get_physical_block_id(CPU, 3) == 1
