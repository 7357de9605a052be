"""Faults of released block managers and prefix caches that the built-in one must not have.

Each test fails on a manager that behaves as the release with the fault does. `kvproof.impl` lists the faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.impl import (
    AllocStatus,
    BlockManager,
    BlockTable,
    CpuGpuBlockAllocator,
    Device,
    NaiveBlock,
    NaiveBlockAllocator,
    NoFreeBlocksError,
    PrefixCachingBlockAllocator,
    SequenceGroup,
    SequenceStatus,
)

Make = Callable[..., SequenceGroup]
Run = Callable[[SequenceGroup], SequenceGroup]
Compute = Callable[[Any, SequenceGroup, int], None]
SetStatus = Callable[[SequenceGroup, SequenceStatus], None]
OK, LATER, NEVER = AllocStatus.OK, AllocStatus.LATER, AllocStatus.NEVER


def test_a_windowed_prompt_is_admitted_only_if_all_its_blocks_fit(make_group: Make) -> None:
    manager = BlockManager(4, 8, 0, 0.0, sliding_window=8)
    assert manager.can_allocate(make_group([1] * 40)) is NEVER  # the window needs 4 blocks, the prompt takes 10
    group = make_group([1] * 32)
    assert manager.can_allocate(group) is OK
    manager.allocate(group)


def test_a_swap_in_counts_the_waiting_token_and_the_lookahead(
    make_group: Make, run: Run, set_status: SetStatus
) -> None:
    manager = BlockManager(4, 3, 3, 0.0)
    group = make_group([1] * 8)
    manager.allocate(group)
    run(group)
    manager.swap_out(group)
    set_status(group, SequenceStatus.SWAPPED)
    group.seqs[0].append_token_id(1)
    assert manager.can_swap_in(group, 3) is OK
    assert manager.can_swap_in(group, 4) is NEVER
    manager.swap_in(group)
    assert manager.append_slots(group.seqs[0], 3) == []


def test_the_watermark_does_not_keep_a_swapped_group_out_of_an_idle_pool(
    make_group: Make, run: Run, set_status: SetStatus
) -> None:
    manager = BlockManager(4, 4, 4, 0.5)
    group = make_group([1] * 8)
    manager.allocate(group)
    run(group)
    for token in range(8):
        group.seqs[0].append_token_id(token)
        manager.append_slots(group.seqs[0], 0)
    manager.swap_out(group)
    set_status(group, SequenceStatus.SWAPPED)
    assert manager.can_swap_in(group, 0) is OK


def windowed_fork(manager: BlockManager, make_group: Make, run: Run) -> SequenceGroup:
    """Two forks whose leading blocks the window has left."""
    group = make_group([1] * 24)
    manager.allocate(group)
    run(group)
    parent = group.seqs[0]
    parent.append_token_id(1)
    manager.append_slots(parent, 0)
    parent.data.update_num_computed_tokens(1)
    child = parent.fork(parent.seq_id + 5000)
    manager.fork(parent, child)
    group.add(child)
    assert manager.null_block_id is not None
    assert manager.get_block_table(child)[0] == manager.null_block_id
    return group


def test_tables_with_the_null_block_fork_swap_and_leave(make_group: Make, run: Run, set_status: SetStatus) -> None:
    manager = BlockManager(4, 12, 12, 0.0, sliding_window=4)
    group = windowed_fork(manager, make_group, run)
    null = manager.null_block_id
    assert null is not None
    pairs = manager.swap_out(group)
    assert null not in [source for source, _ in pairs]
    set_status(group, SequenceStatus.SWAPPED)
    assert manager.get_num_free_gpu_blocks() == 11
    back = manager.swap_in(group)
    assert sorted(source for source, _ in back) == sorted(target for _, target in pairs)
    for seq in group.seqs:
        manager.free(seq)
    assert (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (11, 12)


def test_an_append_counts_the_null_block_that_its_drop_needs(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 6, 0, 0.0, sliding_window=4)
    group = make_group([1] * 24)
    manager.allocate(group)
    run(group)
    group.seqs[0].append_token_id(1)
    # kept from 24 // 4 - 3 = 3: three blocks are dropped, one is the null block, one takes the token
    assert manager.can_append_slots(group, 0)
    manager.append_slots(group.seqs[0], 0)
    assert manager.get_num_free_gpu_blocks() == 1


def test_a_shared_block_swapped_once_stays_shared(make_group: Make, run: Run, set_status: SetStatus) -> None:
    manager = BlockManager(4, 8, 8, 0.0)
    group = make_group([1] * 6, num_seqs=3)
    manager.allocate(group)
    run(group)
    assert len(manager.swap_out(group)) == 2
    set_status(group, SequenceStatus.SWAPPED)
    assert manager.get_num_free_cpu_blocks() == 6
    assert len(manager.swap_in(group)) == 2
    tables = [manager.get_block_table(seq) for seq in group.seqs]
    assert tables[0] == tables[1] == tables[2]
    assert [manager.refcounts[block] for block in tables[0]] == [3, 3]


def test_a_shared_lookahead_block_is_replaced_before_a_worker_writes_there(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 8, 0, 0.0)
    group = make_group([1, 2, 3])
    manager.allocate(group)
    run(group)
    parent = group.seqs[0]
    parent.append_token_id(4)
    manager.append_slots(parent, 2)
    parent.data.update_num_computed_tokens(1)
    child = parent.fork(77)
    manager.fork(parent, child)
    parent.append_token_id(5)
    manager.append_slots(parent, 2)
    assert manager.get_block_table(parent)[1] != manager.get_block_table(child)[1]


def test_a_cross_attention_table_moves_with_its_group(make_group: Make, run: Run, set_status: SetStatus) -> None:
    manager = BlockManager(4, 8, 8, 0.0)
    group = make_group([1] * 5, encoder=[9] * 9)
    manager.allocate(group)
    run(group)
    assert len(manager.swap_out(group)) == 5
    assert manager.get_num_free_gpu_blocks() == 8
    set_status(group, SequenceStatus.SWAPPED)
    manager.swap_in(group)
    assert max(manager.get_cross_block_table(group)) < 8


def test_a_group_admitted_again_keeps_the_cross_table_it_has(make_group: Make) -> None:
    manager = BlockManager(4, 5, 0, 0.0)
    group = make_group([1] * 5, encoder=[9] * 9)
    manager.allocate(group)
    cross = manager.get_cross_block_table(group)[:]
    manager.free(group.seqs[0])
    assert manager.can_allocate(group) is OK
    manager.allocate(group)
    assert manager.get_cross_block_table(group) == cross
    manager.free(group.seqs[0])
    manager.free_cross(group)
    assert manager.get_num_free_gpu_blocks() == 5


def test_a_chain_longer_than_any_recursion_is_forked_and_freed() -> None:
    allocator = NaiveBlockAllocator(NaiveBlock, 20_000, 1)
    last = allocator.allocate_immutable_blocks(None, [[1]] * 20_000)[-1]
    assert last.num_tokens_total == 20_000
    assert len(allocator.fork(last)) == 20_000


def test_a_block_object_returns_to_the_pool_it_came_from() -> None:
    allocator = CpuGpuBlockAllocator.create("naive", 4, 4, 2)
    table = BlockTable(2, allocator)
    table.allocate([1, 2, 3])
    allocator.swap(table.blocks, Device.GPU, Device.CPU)
    table.update(table.blocks)
    assert table.physical_block_ids == [4, 5]
    table.free()
    made = [allocator.allocate_mutable_block(None, Device.GPU) for _ in range(4)]
    assert len({id(block) for block in made}) == 4
    assert (allocator.get_num_free_blocks(Device.GPU), allocator.get_num_free_blocks(Device.CPU)) == (0, 4)


def test_landing_places_of_a_swap_in_are_not_used_twice_in_a_step(
    make_group: Make, run: Run, set_status: SetStatus
) -> None:
    manager = BlockManager(1, 9, 9, 0.0, sliding_window=1)
    groups = [make_group([1] * 6), make_group([1] * 3)]
    for group in groups:
        manager.allocate(group)
        run(group)
        manager.swap_out(group)
        set_status(group, SequenceStatus.SWAPPED)
    keep = make_group([1])
    manager.allocate(keep)
    first = manager.swap_in(groups[0])
    set_status(groups[0], SequenceStatus.RUNNING)
    groups[0].seqs[0].append_token_id(1)
    manager.append_slots(groups[0].seqs[0], 0)  # the window gives up three blocks of the swap-in
    assert manager.num_held_back_blocks() == 1
    if manager.can_swap_in(groups[1], 0) is OK:
        second = manager.swap_in(groups[1])
        assert not {target for _, target in first} & {target for _, target in second}


def test_every_shared_lookahead_block_in_the_written_range_is_replaced(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 8, 0, 0.0)
    group = make_group([1, 2, 3])
    manager.allocate(group)
    run(group)
    parent = group.seqs[0]
    parent.append_token_id(4)
    manager.append_slots(parent, 6)
    parent.data.update_num_computed_tokens(1)
    child = parent.fork(77)
    manager.fork(parent, child)
    parent.append_token_id(5)
    assert len(manager.append_slots(parent, 6)) == 2
    assert not set(manager.get_block_table(parent)[1:]) & set(manager.get_block_table(child)[1:])


# The prefix cache --------------------------------------------------------------------------------------------------


def test_evictable_blocks_are_not_both_free_and_spared_at_swap_in(
    make_group: Make, run: Run, compute: Compute, set_status: SetStatus
) -> None:
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


def test_a_chunk_marks_only_the_blocks_it_completes(make_group: Make, compute: Compute) -> None:
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


def test_equal_hashes_do_not_join_contents(make_group: Make, compute: Compute) -> None:
    assert hash(-1) == hash(-2)
    manager = BlockManager(1, 8, 0, 0.0, enable_caching=True)
    first, second = make_group([5], extra=-1), make_group([5], extra=-2)
    manager.allocate(first)
    compute(manager, first, 1)
    assert manager.get_num_cached_tokens(second.seqs[0]) == 0
    third = make_group([5], extra=-1)
    assert manager.get_num_cached_tokens(third.seqs[0]) == 1


def test_a_failed_admission_leaves_no_reference(make_group: Make, compute: Compute) -> None:
    manager = BlockManager(4, 4, 0, 0.0, enable_caching=True)
    first, large = make_group(list(range(12))), make_group(list(range(24)))
    manager.allocate(first)
    compute(manager, first, 12)
    before = (manager.refcounts[:], manager.free_ids(Device.GPU), len(manager._cache.contents))  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="3 blocks needed on GPU, 1 free"):
        manager.allocate(large)
    assert before == (manager.refcounts, manager.free_ids(Device.GPU), len(manager._cache.contents))  # type: ignore[union-attr]


def test_contents_are_forgotten_with_the_last_block_that_holds_them(make_group: Make, compute: Compute) -> None:
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


def test_only_computed_blocks_become_evictable(make_group: Make, compute: Compute) -> None:
    manager = BlockManager(4, 4, 0, 0.0, enable_caching=True)
    group = make_group(list(range(12)))
    manager.allocate(group)
    compute(manager, group, 4)
    manager.free(group.seqs[0])
    assert manager.evictable_ids(Device.GPU) == [0]
    assert sorted(manager.free_ids(Device.GPU)) == [1, 2, 3]


def test_an_admission_does_not_count_the_blocks_it_hits_as_room(make_group: Make, run: Run, compute: Compute) -> None:
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


def test_a_swap_does_not_make_a_block_computed(make_group: Make, compute: Compute, set_status: SetStatus) -> None:
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
