"""Faults of released prefix caches that this one must not have. Each test fails on the original behaviour."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvproof.impl import (
    AllocStatus,
    BlockManager,
    Device,
    NoFreeBlocksError,
    PrefixCachingBlockAllocator,
    SequenceGroup,
    SequenceStatus,
)

Make = Callable[..., SequenceGroup]
Run = Callable[[SequenceGroup], SequenceGroup]
OK, LATER, NEVER = AllocStatus.OK, AllocStatus.LATER, AllocStatus.NEVER


def compute(manager: BlockManager, group: SequenceGroup, num_tokens: int) -> None:
    """A step that computes the next tokens of the group."""
    manager.mark_blocks_as_computed(group, num_tokens)
    for seq in group.seqs:
        seq.data.update_num_computed_tokens(num_tokens)


def set_status(group: SequenceGroup, status: SequenceStatus) -> None:
    for seq in group.seqs:
        seq.status = status


def test_evictable_blocks_are_not_both_free_and_spared_at_swap_in(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 4, 8, 0.0, enable_caching=True)
    first, second = make_group(list(range(16))), make_group(list(range(50, 58)))
    manager.allocate(first)
    compute(manager, first, 16)
    run(first)
    manager.swap_out(first)
    set_status(first, SequenceStatus.SWAPPED)
    manager.allocate(second)
    assert manager.get_num_free_gpu_blocks() == 2
    assert manager.can_swap_in(first, 0) is LATER


def test_blocks_of_an_aborted_prefill_are_not_hit(make_group: Make) -> None:
    manager = BlockManager(4, 8, 0, 0.0, enable_caching=True)
    first, second = make_group(list(range(9))), make_group(list(range(9)))
    manager.allocate(first)
    manager.free(first.seqs[0])
    other = make_group(list(range(50, 59)))
    manager.allocate(other)
    manager.mark_blocks_as_computed(other, 9)
    manager.allocate(second)
    assert manager.get_common_computed_block_ids(second.seqs) == []


def test_a_chunk_marks_only_the_blocks_it_completes(make_group: Make) -> None:
    manager = BlockManager(4, 16, 0, 0.0, enable_caching=True)
    first, second = make_group(list(range(21))), make_group(list(range(21)))
    manager.allocate(first)
    compute(manager, first, 7)
    assert manager.get_num_cached_tokens(second.seqs[0]) == 4
    compute(manager, first, 1)
    manager.allocate(second)
    assert len(manager.get_common_computed_block_ids(second.seqs)) == 2


def test_a_block_is_not_exchanged_for_one_that_is_not_computed(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 8, 0, 0.0, enable_caching=True)
    writer, filler = make_group([1, 2, 3, 4]), make_group([1, 2, 3])
    manager.allocate(filler)
    manager.mark_blocks_as_computed(filler, 3)
    run(filler)
    manager.allocate(writer)  # not computed yet
    own = manager.get_block_table(filler.seqs[0])[:]
    filler.seqs[0].append_token_id(4)
    assert manager.append_slots(filler.seqs[0], 0) == []
    assert manager.get_block_table(filler.seqs[0]) == own


def test_equal_hashes_do_not_join_contents(make_group: Make) -> None:
    assert hash(-1) == hash(-2)
    manager = BlockManager(1, 8, 0, 0.0, enable_caching=True)
    first, second = make_group([5], extra=-1), make_group([5], extra=-2)
    manager.allocate(first)
    compute(manager, first, 1)
    assert manager.get_num_cached_tokens(second.seqs[0]) == 0
    third = make_group([5], extra=-1)
    assert manager.get_num_cached_tokens(third.seqs[0]) == 1


def test_a_failed_admission_leaves_no_reference(make_group: Make) -> None:
    manager = BlockManager(4, 4, 0, 0.0, enable_caching=True)
    first, large = make_group(list(range(12))), make_group(list(range(24)))
    manager.allocate(first)
    compute(manager, first, 12)
    before = (manager.refcounts[:], manager.free_ids(Device.GPU), len(manager._cache.contents))  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="3 blocks needed on GPU, 1 free"):
        manager.allocate(large)
    assert before == (manager.refcounts, manager.free_ids(Device.GPU), len(manager._cache.contents))  # type: ignore[union-attr]


def test_contents_are_forgotten_with_the_last_block_that_holds_them(make_group: Make) -> None:
    manager = BlockManager(1, 8, 0, 0.0, enable_caching=True)
    for round_ in range(50):
        group = make_group([round_] * 6)
        manager.allocate(group)
        compute(manager, group, 6)
        manager.free(group.seqs[0])
    assert manager._cache is not None
    assert len(manager._cache.contents) <= 8 + 6
    assert manager.reset_prefix_cache()
    assert len(manager._cache.contents) == 0


def test_a_content_hash_of_a_long_chain_needs_no_recursion() -> None:
    allocator = PrefixCachingBlockAllocator(20_000, 1)
    one = allocator.allocate_immutable_blocks(None, [[1]] * 20_000)[-1]
    other = allocator.allocate_immutable_blocks(None, [[1]] * 20_000)[-1]
    assert one.block_id == other.block_id


def test_a_failed_append_leaves_no_content_behind(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 2, 0, 0.0, enable_caching=True)
    group = make_group([1, 2, 3, 4, 5, 6, 7], num_seqs=2)
    manager.allocate(group)
    run(group)
    assert manager._cache is not None
    before = len(manager._cache.contents)
    group.seqs[0].append_token_id(8)
    assert not manager.can_append_slots(group, 0)
    with pytest.raises(NoFreeBlocksError):
        manager.append_slots(group.seqs[0], 0)
    assert len(manager._cache.contents) == before


def test_only_computed_blocks_become_evictable(make_group: Make) -> None:
    manager = BlockManager(4, 4, 0, 0.0, enable_caching=True)
    group = make_group(list(range(12)))
    manager.allocate(group)
    compute(manager, group, 4)
    manager.free(group.seqs[0])
    assert manager.evictable_ids(Device.GPU) == [0]
    assert sorted(manager.free_ids(Device.GPU)) == [1, 2, 3]


def test_an_admission_does_not_count_the_blocks_it_hits_as_room(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 3, 0, 0.0, enable_caching=True)
    group = make_group(list(range(8)))
    manager.allocate(group)
    compute(manager, group, 8)
    run(group)
    manager.free(group.seqs[0])
    before = (manager.refcounts[:], manager.evictable_ids(Device.GPU))
    with pytest.raises(NoFreeBlocksError, match="2 blocks needed on GPU, 1 free"):
        manager.allocate(make_group(list(range(16))))
    assert (manager.refcounts, manager.evictable_ids(Device.GPU)) == before


def test_a_swap_does_not_make_a_block_computed(make_group: Make) -> None:
    manager = BlockManager(4, 4, 4, 0.0, enable_caching=True)
    group = make_group(list(range(8)))
    manager.allocate(group)
    compute(manager, group, 4)
    set_status(group, SequenceStatus.RUNNING)
    manager.swap_out(group)
    assert manager.reset_prefix_cache() is False
    set_status(group, SequenceStatus.SWAPPED)
    other = make_group([50] * 16)
    manager.allocate(other)  # evicts what was left behind
    manager.free(other.seqs[0])
    manager.swap_in(group)
    assert manager.get_num_cached_tokens(make_group(list(range(8))).seqs[0]) == 4
