"""Two blocks with one content: while a computed one is in use, the content is found."""

from __future__ import annotations

from collections.abc import Callable

from kvproof.impl import BlockManager, SequenceGroup, SequenceStatus

Make = Callable[..., SequenceGroup]


def compute(manager: BlockManager, group: SequenceGroup) -> None:
    """A step that computes all known tokens of the group."""
    manager.mark_blocks_as_computed(group, group.seqs[0].data.get_num_uncomputed_tokens())
    for seq in group.seqs:
        seq.status = SequenceStatus.RUNNING
        seq.data.update_num_computed_tokens(seq.data.get_num_uncomputed_tokens())


def grow(manager: BlockManager, group: SequenceGroup) -> None:
    for seq in group.seqs:
        seq.append_token_id(1)
        manager.append_slots(seq, 0)
    compute(manager, group)


def test_a_block_filled_in_the_same_step_takes_over_when_its_twin_is_evicted(make_group: Make) -> None:
    manager = BlockManager(1, 3, 0, 0.0, enable_caching=True)
    group = make_group([1], num_seqs=2)
    manager.allocate(group)
    compute(manager, group)
    grow(manager, group)  # both fill a block with the same content
    manager.free(group.seqs[0])
    group.remove(group.seqs[0].seq_id)
    grow(manager, group)  # takes the place of the first sequence's block
    other = make_group([1, 1, 1, 1])
    assert manager.get_num_cached_tokens(other.seqs[0]) == 3
    manager.free(group.seqs[0])
    assert manager.get_num_cached_tokens(other.seqs[0]) == 3
    assert manager.reset_prefix_cache()
    assert manager.get_num_cached_tokens(other.seqs[0]) == 0


def test_a_block_that_was_swapped_in_takes_over_when_the_one_left_behind_is_evicted(make_group: Make) -> None:
    manager = BlockManager(2, 3, 3, 0.0, enable_caching=True)
    group = make_group([1, 1])
    manager.allocate(group)
    compute(manager, group)
    manager.swap_out(group)
    group.seqs[0].status = SequenceStatus.SWAPPED
    manager.swap_in(group)
    group.seqs[0].status = SequenceStatus.RUNNING
    for token in (2, 3, 4, 5):
        group.seqs[0].append_token_id(token)
        manager.append_slots(group.seqs[0], 0)
    other = make_group([1, 1, 1])
    assert manager.get_num_free_gpu_blocks() == 0
    assert manager.get_num_cached_tokens(other.seqs[0]) == 2
