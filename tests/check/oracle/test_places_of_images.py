"""Images of a prompt lie in it and apart; a shrunk run does not move one onto another."""

from typing import Any

import pytest

from kvproof.check.oracle.expected import lie_apart
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.operations import clipped
from kvproof.check.search.shrinking_worlds import with_block_size
from kvproof.spec.text.identity import Image


@pytest.mark.parametrize(
    ("images", "is_possible"),
    [
        ([("P", 0, 1), ("R", 1, 2)], True),
        ([("P", 2, 1), ("R", 2, 1)], False),
        ([("P", 0, 2), ("R", 1, 1)], False),
        ([("P", 1, 1), ("R", 0, 1)], False),
        ([("P", 2, 2)], False),
    ],
    ids=["apart", "one place", "one over the other", "the last one first", "beyond the prompt"],
)
def test_a_group_arrives_only_with_images_that_an_engine_could_have(images: list[Any], is_possible: bool) -> None:
    assert lie_apart([Image(*one) for one in images], 3) is is_possible
    assert clipped(images, 3) == tuple(images) or not is_possible
    assert lie_apart([Image(*one) for one in clipped(images, 3)], 3)


def test_blocks_of_fewer_slots_do_not_bring_two_images_to_one_place() -> None:
    new = ("new", 1, (1,), (0, 0, 0, 0), (None, 0, None), (("P", 2, 1), ("R", 3, 1)))
    for config, operations in with_block_size(Config(block_size=4, images=True), [new], 1):
        tokens, images = operations[0][3], operations[0][5]
        assert config.block_size == 1
        assert lie_apart([Image(*one) for one in images], len(tokens))
