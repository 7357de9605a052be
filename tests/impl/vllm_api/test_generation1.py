"""The manager of the first generation: its answers, known faults of the original, and prefixes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvproof.impl import (
    AllocStatus,
    BlockSpaceManagerV1,
    DoubleFreeError,
    InvalidValueError,
    NoFreeBlocksError,
    Prefix,
    SequenceGroup,
    SequenceStatus,
)

Make = Callable[..., SequenceGroup]
Run = Callable[[SequenceGroup], SequenceGroup]
OK, LATER, NEVER = AllocStatus.OK, AllocStatus.LATER, AllocStatus.NEVER


def set_status(group: SequenceGroup, status: SequenceStatus) -> None:
    for seq in group.seqs:
        seq.status = status


def compute(manager: BlockSpaceManagerV1, group: SequenceGroup, num_tokens: int) -> None:
    """A step that computes the next tokens of the group, which runs from then on."""
    manager.mark_blocks_as_computed(group, num_tokens)
    for seq in group.seqs:
        seq.status = SequenceStatus.RUNNING
        seq.data.update_num_computed_tokens(num_tokens)


def grow(manager: BlockSpaceManagerV1, group: SequenceGroup, token: int = 1) -> list[tuple[int, int]]:
    """Give every sequence a token and a slot for it, and compute it; returns the copies."""
    for seq in group.seqs:
        seq.append_token_id(token)
    assert manager.can_append_slots(group)
    copies = [pair for seq in group.seqs for pair in manager.append_slots(seq)]
    compute(manager, group, 1)
    return copies


def test_admission_answers_by_the_watermark(make_group: Make) -> None:
    manager = BlockSpaceManagerV1(4, 10, 0, watermark=0.2)
    answers = [manager.can_allocate(make_group([1] * (4 * n))) for n in (7, 8, 9)]
    assert answers == [OK, OK, NEVER]
    manager.allocate(make_group([1] * 4))
    assert manager.can_allocate(make_group([1] * 32)) is LATER


def test_waiting_sequences_of_a_group_get_the_same_blocks(make_group: Make) -> None:
    manager = BlockSpaceManagerV1(4, 8, 0)
    group = make_group([1] * 6, num_seqs=3)
    manager.allocate(group)
    tables = [manager.block_tables[seq.seq_id] for seq in group.seqs]
    assert tables[0] == tables[1] == tables[2]
    assert [block.ref_count for block in tables[0]] == [3, 3]
    assert manager.get_block_table(group.seqs[0]) == [block.block_number for block in tables[0]]


def test_a_shared_last_block_is_copied_before_it_is_written(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 8, 0)
    group = make_group([1] * 6, num_seqs=2)
    manager.allocate(group)
    run(group)
    old = manager.get_block_table(group.seqs[0])[-1]
    copies = grow(manager, group)
    assert len(copies) == 1
    assert copies[0] == (old, manager.get_block_table(group.seqs[0])[-1])
    assert manager.get_block_table(group.seqs[1])[-1] == old
    assert manager.gpu_allocator.block(old).ref_count == 1


def test_numbers_of_swapped_blocks_count_from_zero_on_the_host(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 8, 4)
    group = make_group([1] * 6, num_seqs=2)
    manager.allocate(group)
    run(group)
    pairs = manager.swap_out(group)
    set_status(group, SequenceStatus.SWAPPED)
    assert sorted(target for _, target in pairs) == sorted(manager.get_block_table(group.seqs[0])) == [0, 1]
    assert [block.device.name for block in manager.block_tables[group.seqs[0].seq_id]] == ["CPU", "CPU"]
    assert manager.can_swap_in(group) is OK
    back = manager.swap_in(group)
    assert [source for source, _ in back] == [target for _, target in pairs]
    assert manager.cpu_allocator.get_num_free_blocks() == 4


def test_a_reset_gives_everything_up(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 12, 8)
    for group in (make_group([1] * 6, num_seqs=2), make_group([1] * 5, encoder=[2] * 9)):
        manager.allocate(group)
        run(group)
    manager.swap_out(group)
    manager.reset()
    assert (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()) == (12, 8)
    assert (manager.block_tables, manager.cross_block_tables) == ({}, {})
    with pytest.raises(DoubleFreeError):
        manager.gpu_allocator.free(manager.gpu_allocator.block(0))


def test_lookahead_slots_are_refused(make_group: Make) -> None:
    manager = BlockSpaceManagerV1(4, 8, 0)
    with pytest.raises(InvalidValueError, match="num_lookahead_slots"):
        manager.can_allocate(make_group([1]), 1)


# Known faults of the original -------------------------------------------------------------------------------------


def test_a_sequence_alone_in_a_full_pool_appends_where_it_has_room(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 2, 0, 0.0)
    group = make_group([1] * 6)
    manager.allocate(group)
    run(group)
    assert manager.get_num_free_gpu_blocks() == 0
    assert grow(manager, group) == []  # if it needed one free block, it would be preempted again and again


def test_a_swap_in_counts_the_waiting_token_and_its_copy(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 3, 4, 0.0)
    group = make_group([1] * 6, num_seqs=2)
    manager.allocate(group)
    run(group)
    manager.swap_out(group)
    set_status(group, SequenceStatus.SWAPPED)
    for seq in group.seqs:
        seq.append_token_id(1)
    assert manager.can_swap_in(group) is OK  # two shared blocks and the copy of one
    other = make_group([1])
    manager.allocate(other)
    assert manager.can_swap_in(group) is LATER
    manager.free(other.seqs[0])
    assert len(manager.swap_in(group)) == 2
    assert [len(manager.append_slots(seq)) for seq in group.seqs] == [1, 0]


def test_the_watermark_keeps_no_swapped_group_out_of_an_idle_pool(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 4, 4, 0.5)
    group = make_group([1] * 8)
    manager.allocate(group)
    run(group)
    for _ in range(8):
        grow(manager, group)
    manager.swap_out(group)
    set_status(group, SequenceStatus.SWAPPED)
    assert manager.can_swap_in(group) is OK


def test_only_blocks_whose_every_slot_is_written_are_hits(make_group: Make) -> None:
    manager = BlockSpaceManagerV1(4, 16, 0, enable_caching=True)
    first, second = make_group([1] * 21), make_group([1] * 21)
    manager.allocate(first)
    compute(manager, first, 8)
    manager.allocate(second)
    assert len(manager.get_common_computed_block_ids(second.seqs)) == 2


def test_a_prompt_that_is_cached_whole_still_computes_its_last_block(make_group: Make) -> None:
    manager = BlockSpaceManagerV1(4, 16, 0, enable_caching=True)
    first, second = make_group([1] * 8), make_group([1] * 8)
    manager.allocate(first)
    compute(manager, first, 8)
    manager.allocate(second)
    assert manager.get_block_table(second.seqs[0]) == manager.get_block_table(first.seqs[0])
    assert manager.get_common_computed_block_ids(second.seqs) == manager.get_block_table(first.seqs[0])[:1]


def test_another_adapter_does_not_share_blocks(make_group: Make) -> None:
    manager = BlockSpaceManagerV1(4, 16, 0, enable_caching=True)
    first, second = make_group([1] * 8, extra=("adapter", 1)), make_group([1] * 8, extra=("adapter", 2))
    manager.allocate(first)
    compute(manager, first, 8)
    manager.allocate(second)
    assert not set(manager.get_block_table(first.seqs[0])) & set(manager.get_block_table(second.seqs[0]))


def test_a_partial_block_is_not_shared_by_two_requests(make_group: Make) -> None:
    manager = BlockSpaceManagerV1(4, 16, 0, enable_caching=True)
    first, second = make_group([1] * 6), make_group([1] * 6)
    manager.allocate(first)
    compute(manager, first, 6)
    manager.allocate(second)
    tables = [manager.get_block_table(group.seqs[0]) for group in (first, second)]
    assert tables[0][0] == tables[1][0]
    assert tables[0][1] != tables[1][1]


def test_a_failed_call_changes_nothing(make_group: Make, run: Run) -> None:
    manager = BlockSpaceManagerV1(4, 3, 0, 0.0)
    group = make_group([1] * 12)
    manager.allocate(group)
    run(group)
    tables, counts = {k: list(v) for k, v in manager.block_tables.items()}, manager.refcounts[:]
    group.seqs[0].append_token_id(1)
    with pytest.raises(NoFreeBlocksError):
        manager.append_slots(group.seqs[0])
    with pytest.raises(NoFreeBlocksError):
        manager.allocate(make_group([1], encoder=[1]))
    assert (manager.block_tables, manager.cross_block_tables, manager.refcounts) == (tables, {}, counts)


# Prefixes ---------------------------------------------------------------------------------------------------------


class PrefixedGroup(SequenceGroup):
    """A group that names a prefix."""

    def __init__(self, group: SequenceGroup, prefix: Prefix) -> None:
        super().__init__(group.request_id, group.seqs)
        self.prefix = prefix


def test_a_prefix_is_allocated_once_and_subtracted_from_then_on(make_group: Make) -> None:
    manager, prefix = BlockSpaceManagerV1(4, 6, 0, 0.0), Prefix([1] * 10, 4)
    assert (prefix.get_length(), prefix.get_num_blocks()) == (8, 2)
    first, second = (PrefixedGroup(make_group([1] * 14, num_seqs=n), prefix) for n in (1, 2))
    manager.allocate(first)
    assert (prefix.allocated, prefix.computed, manager.get_num_free_gpu_blocks()) == (True, False, 2)
    compute(manager, first, 7)
    assert not prefix.computed
    compute(manager, first, 7)
    assert prefix.computed
    assert manager.can_allocate(make_group([1] * 14)) is LATER
    assert manager.can_allocate(second) is OK
    manager.allocate(second)
    table = manager.get_block_table(second.seqs[0])
    assert table[:2] == manager.get_block_table(first.seqs[0])[:2] == prefix.get_block_numbers()
    assert [manager.refcounts[block] for block in table] == [4, 4, 2, 2]


def test_a_pool_whose_free_blocks_a_prefix_keeps_never_says_later(make_group: Make) -> None:
    manager, prefix = BlockSpaceManagerV1(4, 4, 0, 0.0), Prefix([1] * 8, 4)
    group = PrefixedGroup(make_group([1] * 9), prefix)
    manager.allocate(group)
    manager.free(group.seqs[0])
    assert manager.can_allocate(make_group([1] * 12)) is NEVER
    assert manager.can_allocate(make_group([1] * 8)) is OK
    assert manager.can_allocate(PrefixedGroup(make_group([1] * 16), prefix)) is OK
    manager.free_prefix(prefix)
    manager.free_prefix(prefix)
    assert (manager.get_num_free_gpu_blocks(), prefix.allocated) == (4, False)
    assert manager.can_allocate(make_group([1] * 12)) is OK


def test_a_prefix_is_refused_to_other_tokens_and_to_another_adapter(make_group: Make) -> None:
    manager, prefix = BlockSpaceManagerV1(4, 8, 0), Prefix([1] * 8, 4)
    with pytest.raises(InvalidValueError, match="does not begin"):
        manager.allocate(PrefixedGroup(make_group([2] * 8), prefix))
    manager.allocate(PrefixedGroup(make_group([1] * 8, extra="x"), prefix))
    with pytest.raises(InvalidValueError, match="another adapter"):
        manager.allocate(PrefixedGroup(make_group([1] * 8, extra="y"), prefix))
    assert manager.refcounts[:3] == [2, 2, 0]


def test_a_group_that_could_not_come_back_beside_a_prefix_is_not_swapped_out(make_group: Make, run: Run) -> None:
    manager, prefix = BlockSpaceManagerV1(4, 5, 8, 0.0), Prefix([1] * 8, 4)
    group = PrefixedGroup(make_group([1] * 12), prefix)
    manager.allocate(group)
    run(group)
    assert not manager.can_swap_out(group)  # three blocks and one for its token, of three that no prefix keeps
    manager.free_prefix(prefix)
    assert manager.can_swap_out(group)


def test_a_prefix_is_not_computed_by_a_sequence_that_was_swapped_and_has_copies(make_group: Make) -> None:
    manager, prefix = BlockSpaceManagerV1(4, 8, 8, 0.0), Prefix([1] * 8, 4)
    group = PrefixedGroup(make_group([1] * 8), prefix)
    manager.allocate(group)
    compute(manager, group, 4)
    manager.swap_out(group)
    set_status(group, SequenceStatus.SWAPPED)
    manager.swap_in(group)
    compute(manager, group, 4)
    assert manager.get_block_table(group.seqs[0]) != prefix.get_block_numbers()
    assert not prefix.computed
    second = PrefixedGroup(make_group([1] * 8), prefix)
    manager.allocate(second)
    compute(manager, second, 8)
    assert prefix.computed


def test_a_swap_in_leaves_the_watermark_to_a_group_that_has_only_a_prefix(make_group: Make, run: Run) -> None:
    manager, prefix = BlockSpaceManagerV1(2, 3, 2, 0.34), Prefix([1] * 2, 2)
    group, other = make_group([1] * 3), PrefixedGroup(make_group([1] * 2), prefix)
    manager.allocate(group)
    run(group)
    manager.swap_out(group)
    set_status(group, SequenceStatus.SWAPPED)
    manager.allocate(other)
    assert manager.can_swap_in(group) is LATER
    manager.free(other.seqs[0])
    assert manager.can_swap_in(group) is OK
