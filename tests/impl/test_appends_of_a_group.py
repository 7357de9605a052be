"""The answer of `can_append_slots` for a group holds for every order in which its members append."""

import pytest

from kvproof.impl.block_manager import SelfAttnBlockSpaceManager
from kvproof.impl.errors import NoFreeBlocksError
from kvproof.impl.sequence import Sequence, SequenceGroup, SequenceStatus


def forked_pair() -> tuple[SelfAttnBlockSpaceManager, SequenceGroup, Sequence, Sequence]:
    """A full pool and a group of two. Both write the tail that they share, and only the parent can drop a block.

    There are 7 tokens in 4 blocks of 2 slots, and 6 of them are computed. The window has left the first block, which
    the child has dropped already.
    """
    manager = SelfAttnBlockSpaceManager(2, 5, 0, watermark=0, sliding_window=1)
    parent = Sequence(0, list(range(7)), 2)
    manager.allocate(SequenceGroup("request", [parent]))
    parent.status = SequenceStatus.RUNNING
    child = parent.fork(1)
    manager.fork(parent, child)
    child.data.update_num_computed_tokens(6)
    manager.append_slots(child, 0)
    parent.data.update_num_computed_tokens(6)
    parent.append_token_id(7)
    child.append_token_id(8)
    return manager, SequenceGroup("request", [parent, child]), parent, child


def test_one_members_window_does_not_pay_for_a_copy_that_another_may_have_to_make() -> None:
    manager, group, _, child = forked_pair()
    assert manager.get_num_free_gpu_blocks() == 0
    assert not manager.can_append_slots(group, 0)
    with pytest.raises(NoFreeBlocksError):
        manager.append_slots(child, 0)


def test_a_member_alone_pays_for_its_copy_with_what_its_window_leaves() -> None:
    manager, _, parent, child = forked_pair()
    child.status = SequenceStatus.FINISHED_STOPPED
    group = SequenceGroup("request", [parent, child])
    assert manager.can_append_slots(group, 0)
    assert manager.append_slots(parent, 0) == [(3, 0)]
