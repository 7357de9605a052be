"""Rings: a sliding window in which a block is used for a second logical block."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvproof.impl import (
    AllocStatus,
    BlockSpaceManagerV1,
    InvalidValueError,
    NoFreeBlocksError,
    Sequence,
    SequenceGroup,
    SequenceStatus,
)

Make = Callable[..., SequenceGroup]
Run = Callable[[SequenceGroup], SequenceGroup]
OK, LATER = AllocStatus.OK, AllocStatus.LATER


def grow(manager: BlockSpaceManagerV1, seq: Sequence) -> list[tuple[int, int]]:
    seq.append_token_id(1)
    copies = manager.append_slots(seq)
    seq.data.update_num_computed_tokens(1)
    return copies


def test_a_logical_block_takes_the_place_of_the_one_a_ring_before(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 8, 0, sliding_window=8)
    group = make_group([1] * 6)
    manager.allocate(group)
    run(group)
    for _ in range(14):
        assert grow(manager, group.seqs[0]) == []
    a, b = manager.get_block_table(group.seqs[0])[:2]
    assert manager.get_block_table(group.seqs[0]) == [a, b, a, b, a]
    assert (manager.refcounts[a], manager.refcounts[b], manager.get_num_free_gpu_blocks()) == (1, 1, 6)
    manager.free(group.seqs[0])
    assert manager.get_num_free_gpu_blocks() == 8


@pytest.mark.parametrize(("sliding_window", "num_ring_blocks"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_ring_has_the_blocks_that_its_window_begins(sliding_window: int, num_ring_blocks: int) -> None:
    assert BlockSpaceManagerV1(4, 8, 0, sliding_window=sliding_window).block_sliding_window == num_ring_blocks


def test_admission_says_ok_to_exactly_what_allocation_takes(make_group: Make) -> None:
    manager = BlockSpaceManagerV1(4, 3, 0, 0.0, sliding_window=8)
    group = make_group([1] * 40)
    assert manager.can_allocate(group) is OK
    manager.allocate(group)
    a, b = manager.get_block_table(group.seqs[0])[:2]
    assert manager.get_block_table(group.seqs[0]) == [a, b] * 5
    assert manager.get_num_free_gpu_blocks() == 1
    assert manager.can_allocate(make_group([1] * 40)) is LATER
    with pytest.raises(NoFreeBlocksError):
        manager.allocate(make_group([1] * 40))
    assert manager.get_num_free_gpu_blocks() == 1


def test_a_fork_counts_each_block_of_a_ring_once(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 8, 0, sliding_window=8)
    group = make_group([1] * 10)
    manager.allocate(group)
    run(group)
    parent = group.seqs[0]
    child = parent.fork(100)
    manager.fork(parent, child)
    assert sorted(manager.refcounts) == [0] * 6 + [2, 2]
    for seq in (parent, child):
        grow(manager, seq)
    for seq in (parent, child):
        manager.free(seq)
    assert manager.get_num_free_gpu_blocks() == 8


def test_after_a_copy_the_ring_turns_to_the_copy(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 8, 0, sliding_window=8)
    group = make_group([1] * 10)
    manager.allocate(group)
    run(group)
    parent = group.seqs[0]
    child = parent.fork(100)
    manager.fork(parent, child)
    ((old, new),) = grow(manager, parent)
    for _ in range(8):  # two blocks later the parent reuses its copy
        grow(manager, parent)
    table = manager.get_block_table(parent)
    assert table[-1] == table[-3] == new
    assert old not in table
    assert manager.get_block_table(child)[-1] == old


def test_a_shared_block_is_copied_when_it_takes_a_second_place(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 3, 0, 0.0, sliding_window=8)
    group = make_group([1] * 8, num_seqs=2)
    manager.allocate(group)
    run(group)
    for seq in group.seqs:
        seq.append_token_id(1)
    assert manager.can_append_slots(group)  # one copy: the last holder keeps the block
    first = manager.get_block_table(group.seqs[0])[0]
    assert [manager.append_slots(seq) for seq in group.seqs] == [[(first, 2)], []]
    assert [manager.get_block_table(seq)[-1] for seq in group.seqs] == [2, first]


def test_a_refused_turn_changes_nothing(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 2, 0, 0.0, sliding_window=8)
    group = make_group([1] * 8, num_seqs=2)
    manager.allocate(group)
    run(group)
    before = [manager.get_block_table(seq)[:] for seq in group.seqs], manager.refcounts[:]
    for seq in group.seqs:
        seq.append_token_id(1)
    assert not manager.can_append_slots(group)
    with pytest.raises(NoFreeBlocksError):
        manager.append_slots(group.seqs[0])
    for _ in range(4):
        group.seqs[0].append_token_id(1)
    with pytest.raises(InvalidValueError, match="one block at a time"):
        manager.append_slots(group.seqs[0])
    assert ([manager.get_block_table(seq) for seq in group.seqs], manager.refcounts) == before


def test_a_ring_is_swapped_block_by_block_and_stays_shared(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 8, 3, 0.0, sliding_window=8)
    group = make_group([1] * 18, num_seqs=2)
    manager.allocate(group)
    run(group)
    assert len(manager.swap_out(group)) == 2
    for seq in group.seqs:
        seq.status = SequenceStatus.SWAPPED
    a, b = manager.get_block_table(group.seqs[0])[:2]
    assert manager.get_block_table(group.seqs[0]) == [a, b, a, b, a]
    assert {a, b} == {0, 1}
    assert manager.can_swap_in(group) is OK
    assert len(manager.swap_in(group)) == 2
    tables = [manager.get_block_table(seq) for seq in group.seqs]
    assert tables[0] == tables[1]
    assert (len(set(tables[0])), manager.get_num_free_cpu_blocks()) == (2, 3)
