"""Faults of released block managers that this one must not have. Each test fails on the original behaviour."""

from __future__ import annotations

from collections.abc import Callable

from kvproof.impl import (
    AllocStatus,
    BlockManager,
    BlockTable,
    CpuGpuBlockAllocator,
    Device,
    NaiveBlock,
    NaiveBlockAllocator,
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


def test_a_windowed_prompt_is_admitted_only_if_all_its_blocks_fit(make_group: Make) -> None:
    manager = BlockManager(4, 8, 0, 0.0, sliding_window=8)
    assert manager.can_allocate(make_group([1] * 40)) is NEVER  # the window needs 4 blocks, the prompt takes 10
    group = make_group([1] * 32)
    assert manager.can_allocate(group) is OK
    manager.allocate(group)


def test_a_swap_in_counts_the_waiting_token_and_the_lookahead(make_group: Make, run: Run) -> None:
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


def test_the_watermark_does_not_keep_a_swapped_group_out_of_an_idle_pool(make_group: Make, run: Run) -> None:
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


def test_tables_with_the_null_block_fork_swap_and_leave(make_group: Make, run: Run) -> None:
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


def test_a_shared_block_swapped_once_stays_shared(make_group: Make, run: Run) -> None:
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


def test_a_cross_attention_table_moves_with_its_group(make_group: Make, run: Run) -> None:
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


def test_landing_places_of_a_swap_in_are_not_used_twice_in_a_step(make_group: Make, run: Run) -> None:
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
