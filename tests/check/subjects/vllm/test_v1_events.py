"""vLLM's events of stored blocks, as the protocol has them: which block has which tokens, and what is before it."""

from kvproof.check.protocol.block_events import BlockEvent, StoredBlock
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.vllm.v1_events import block_events, groups_that_keep_all
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options


class BlockStored(Options):
    """An event, by vLLM's name."""


def reported(names: list[str], tokens: list[int], group: int = 0) -> list[BlockEvent]:
    event = BlockStored(
        medium="GPU", group_idx=group, block_hashes=names, token_ids=tokens, block_size=2, parent_block_hash="root"
    )
    return block_events([event], {0})


def test_each_block_of_an_event_has_its_tokens_and_the_block_before_it() -> None:
    assert reported(["a", "b"], [1, 2, 3, 4]) == [StoredBlock(0, "a", "root", (1, 2)), StoredBlock(0, "b", "a", (3, 4))]


def test_where_each_block_is_named_tokens_of_no_other_block_are_those_of_the_first_one() -> None:
    assert reported(["a", "b"], [1, 2, 3, 4, 5, 6]) == [
        StoredBlock(0, "a", "root", (1, 2, 3, 4)),
        StoredBlock(0, "b", "a", (5, 6)),
    ]
    assert reported(["a", "b"], [1]) == [StoredBlock(0, "a", "root", ()), StoredBlock(0, "b", "a", (1,))]
    assert reported([], [1, 2]) == []


def test_where_some_blocks_are_kept_the_event_does_not_say_which_tokens_they_have() -> None:
    assert reported(["a", "b"], [1, 2, 3, 4, 5, 6], group=1) == [StoredBlock(1, name, None) for name in ("a", "b")]


def test_full_attention_alone_keeps_each_block() -> None:
    assert groups_that_keep_all(Config(1, 1, window=2, kv_groups=("window", "full", "state"), caching=True)) == {1}
    assert groups_that_keep_all(Config(1, 1, window=2)) == set()
    assert groups_that_keep_all(Config(1, 1)) == {0}
