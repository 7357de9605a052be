"""The block objects in lockstep with the specification."""

from __future__ import annotations

import pytest

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.manager import Config, Unsupported
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin.objects import BlockObjects
from kvproof.spec.trace import Operation


@pytest.mark.parametrize("seed", [1, 2])
def test_a_walk_finds_nothing_and_no_hit_is_missed(seed: int) -> None:
    done = walk(MANAGERS, BlockObjects(), seed, max_operations=15_000, seconds=200)
    assert done.finding is None
    assert done.notes["hit-complete"] == 0
    for witness in (
        "window left an entry",
        "copy-on-write",
        "swap_in",
        "hit on an evictable block",
        "eviction with a choice",
        "cross-attention table",
        "reset",
    ):
        assert done.coverage[witness] > 0, witness


@pytest.mark.parametrize(
    "config", [Config(window=4, caching=True), Config(cross=True, caching=True), Config(images=True)]
)
def test_a_configuration_that_vllm_refuses_is_unsupported(config: Config) -> None:
    with pytest.raises(Unsupported):
        BlockObjects().open(config)


NOTHING = ((None, 0, None), ())  # no adapter, no salt, no images
# Runs in which the objects once gave up a block of a copy in the step of the copy. In the first, the target of the copy
# was exchanged for a cached block, and a swap-in landed on it; in the second, the source was, and became the target of
# another copy.
COPIES_AND_EXCHANGES: dict[str, tuple[Config, list[Operation]]] = {
    "target": (
        Config(num_gpu_blocks=3, num_host_blocks=1, caching=True),
        [
            ("new", 1, (1,), (0, 0, 0), *NOTHING),
            ("new", 2, (2,), (0, 0, 0, 0), *NOTHING),
            ("admit", 2, 1),
            ("admit", 1, 1),
            ("run", 0),
            ("fork", 1, 3),
            ("sample", 1, (0, 1)),
            ("swap_out", 2),
            ("run", 0),
            ("append", 1),
            ("swap_in", 2),
            ("run", 0),
        ],
    ),
    "source": (
        Config(block_size=2, caching=True),
        [
            ("new", 1, (1, 2), (1,) * 9, *NOTHING),
            ("admit", 1, 1),
            ("new", 2, (3, 4), (1,), *NOTHING),
            ("admit", 2, 1),
            ("run", 0),
            ("sample", 1, (0, 0)),
            ("sample", 2, (0, 1)),
            ("append", 2),
            ("append", 1),
            ("run", 0),
        ],
    ),
}


@pytest.mark.parametrize("run", COPIES_AND_EXCHANGES)
def test_no_block_of_a_copy_is_given_up_before_the_copy_is_made(run: str) -> None:
    config, operations = COPIES_AND_EXCHANGES[run]
    judge = ManagerJudge(BlockObjects(), config)
    assert [operation for operation in operations if not judge.apply(operation)] == []
