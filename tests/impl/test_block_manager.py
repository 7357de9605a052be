"""The calls of the block manager, and that a refused call changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import pytest

from kvproof.impl import (
    AllocStatus,
    BlockManager,
    Device,
    DuplicateSequenceError,
    InvalidValueError,
    NoFreeBlocksError,
    SequenceGroup,
    UnknownSequenceError,
    UnsupportedError,
    WrongDeviceError,
)

Make = Callable[..., SequenceGroup]
Run = Callable[[SequenceGroup], SequenceGroup]


def snapshot(manager: BlockManager) -> tuple[Any, ...]:
    tables = {seq_id: (table.ids[:], table.num_tokens) for seq_id, table in manager.tables.items()}
    return tables, manager.refcounts[:], manager.free_ids(Device.GPU), manager.free_ids(Device.CPU)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("block_size", (0, 4, 4)),
        ("num_gpu_blocks", (4, -1, 4)),
        ("num_cpu_blocks", (4, 4, -1)),
        ("watermark", (4, 4, 4, 1.5)),
        ("sliding_window", (4, 4, 4, 0.0, 0)),
        ("sliding_window", (4, 4, 4, 0.0, 4, True)),
    ],
)
def test_a_manager_that_cannot_be_is_refused(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidValueError, match=name):
        BlockManager(*arguments)


def test_the_watermark_decides_between_ok_later_and_never(make_group: Make) -> None:
    manager = BlockManager(4, 10, 0, 0.2)
    assert manager.can_allocate(make_group([1] * 32)) is AllocStatus.OK
    assert manager.can_allocate(make_group([1] * 32), 1) is AllocStatus.NEVER
    manager.allocate(make_group([1] * 4))
    assert manager.can_allocate(make_group([1] * 32)) is AllocStatus.LATER


def test_a_shared_tail_is_copied_before_it_is_written(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 8, 0, 0.0)
    group = make_group([1] * 6, num_seqs=2)
    manager.allocate(group)
    run(group)
    for seq in group.seqs:
        seq.append_token_id(2)
    assert manager.can_append_slots(group, 0)
    assert [manager.append_slots(seq, 0) for seq in group.seqs] == [[(1, 2)], []]
    assert [manager.get_block_table(seq) for seq in group.seqs] == [[0, 2], [0, 1]]


def test_the_last_holder_of_a_copied_block_is_not_exchanged(make_group: Make, run: Run) -> None:
    # Its block was the source of a copy in this step; if it were freed, it could become the target of another copy.
    manager = BlockManager(2, 8, 0, 0.0, enable_caching=True)
    twin, group = make_group([1, 3]), make_group([1], num_seqs=2)
    for each, num_tokens in ((twin, 2), (group, 1)):
        manager.allocate(each)
        manager.mark_blocks_as_computed(each, num_tokens)
        run(each)
    for seq, token in zip(group.seqs, (2, 3), strict=True):
        seq.append_token_id(token)
    source = manager.get_block_table(group.seqs[1])[0]
    assert manager.append_slots(group.seqs[0], 0)[0][0] == source
    assert manager.append_slots(group.seqs[1], 0) == []
    assert manager.get_block_table(group.seqs[1]) == [source]


def test_a_block_that_becomes_full_is_exchanged_for_its_computed_twin(make_group: Make, run: Run) -> None:
    manager = BlockManager(2, 8, 0, 0.0, enable_caching=True)
    twin, group = make_group([1, 3]), make_group([1])
    for each, num_tokens in ((twin, 2), (group, 1)):
        manager.allocate(each)
        manager.mark_blocks_as_computed(each, num_tokens)
        run(each)
    group.seqs[0].append_token_id(3)
    assert manager.append_slots(group.seqs[0], 0) == []
    assert manager.get_block_table(group.seqs[0]) == manager.get_block_table(twin.seqs[0])


def test_a_freed_prompt_is_hit_until_it_is_evicted_oldest_first(make_group: Make, run: Run) -> None:
    manager = BlockManager(1, 4, 0, 0.0, enable_caching=True)
    groups = [make_group([1, 2]), make_group([3, 4])]
    for now, group in enumerate(groups):
        manager.allocate(group)
        manager.access_all_blocks_in_seq(group.seqs[0], float(-now))
        manager.mark_blocks_as_computed(group, 2)
        run(group)
        manager.free(group.seqs[0])
    assert manager.evictable_ids(Device.GPU) == [3, 2, 1, 0]
    manager.allocate(make_group([5]))
    assert [manager.get_num_cached_tokens(make_group(t).seqs[0]) for t in ([1, 2], [3, 4])] == [2, 1]
    assert not manager.reset_prefix_cache()


def test_images_belong_to_the_block_that_holds_them(make_group: Make) -> None:
    manager = BlockManager(2, 8, 0, 0.0, enable_caching=True)
    first, other = make_group([1] * 6), make_group([1] * 6)
    first.seqs[0].block_extra = lambda index: ("image", 0) if index == 1 else None  # type: ignore[attr-defined]
    manager.allocate(first)
    manager.mark_blocks_as_computed(first, 6)
    manager.allocate(other)
    assert len(manager.get_common_computed_block_ids(other.seqs)) == 1


def test_refused_calls_change_nothing(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 4, 1, 0.0)
    group = make_group([1] * 8, num_seqs=2)
    manager.allocate(group)
    run(group)
    parent, sibling = group.seqs
    before = snapshot(manager)
    with pytest.raises(DuplicateSequenceError, match=f"sequence {sibling.seq_id}"):
        manager.fork(parent, sibling)
    with pytest.raises(NoFreeBlocksError, match="2 blocks needed on CPU, 1 free"):
        manager.swap_out(group)
    with pytest.raises(NoFreeBlocksError, match="3 blocks needed on GPU, 2 free"):
        manager.append_slots(parent, 9)
    with pytest.raises(NoFreeBlocksError):
        manager.allocate(make_group([1] * 12))
    with pytest.raises(InvalidValueError, match="lookahead"):
        manager.append_slots(parent, -1)
    with pytest.raises(UnknownSequenceError, match="has no block table"):
        manager.append_slots(make_group([1]).seqs[0], 0)
    with pytest.raises(InvalidValueError, match="waiting sequences"):
        manager.can_allocate(group)
    assert snapshot(manager) == before


def test_a_swapped_sequence_does_not_append(make_group: Make, run: Run) -> None:
    manager = BlockManager(4, 4, 4, 0.0)
    group = make_group([1] * 6)
    manager.allocate(group)
    run(group)
    manager.swap_out(group)
    group.seqs[0].append_token_id(1)
    with pytest.raises(WrongDeviceError, match="not on GPU"):
        manager.append_slots(group.seqs[0], 0)


def test_nothing_happens_to_unknown_sequences(make_group: Make) -> None:
    manager = BlockManager(4, 4, 4)
    group = make_group([1])
    before = snapshot(manager)
    manager.free(group.seqs[0])
    manager.free_cross(group)
    manager.fork(group.seqs[0], group.seqs[0])
    manager.access_all_blocks_in_seq(group.seqs[0], 1.0)
    manager.mark_blocks_as_computed(group, 1)
    assert manager.get_block_table(group.seqs[0]) == manager.get_cross_block_table(group) == []
    assert manager.get_common_computed_block_ids(group.seqs) == []
    assert snapshot(manager) == before


def test_waiting_sequences_of_a_group_have_one_prompt(make_group: Make) -> None:
    manager = BlockManager(4, 4, 0)
    group = make_group([1] * 4, num_seqs=2)
    group.seqs[1].append_token_id(2)
    with pytest.raises(InvalidValueError, match="must have the same prompt"):
        manager.allocate(group)


def test_an_encoder_goes_neither_with_caching_nor_with_a_window(make_group: Make) -> None:
    group = make_group([1], encoder=[1])
    with pytest.raises(UnsupportedError, match="an encoder-decoder does not go with a sliding window"):
        BlockManager(4, 4, 0, sliding_window=4).can_allocate(group)
    with pytest.raises(NotImplementedError, match="an encoder-decoder does not go with prefix caching"):
        BlockManager(4, 4, 0, enable_caching=True).can_allocate(group)


def test_a_million_blocks_are_made_at_once() -> None:
    seconds_max = 3  # an idle machine takes a tenth of that; with an object for each block it would take ten times that
    begin = perf_counter()
    BlockManager(16, 1_000_000, 0, enable_caching=True)
    assert perf_counter() - begin < seconds_max
