"""Holders that give up in one call: a block that two of them hold is mentioned twice, and is free once."""

from collections import Counter

import pytest

from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import POOLS
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.spec.trace import Operation

SHARED: list[Operation] = [("take", 1, 2), ("share", 1, 2)]


class CountsAtTheEnd(OwnPool):
    """Every mention is counted first; whatever has no reference then is free, as often as it was mentioned."""

    def free(self, blocks: list[int]) -> None:
        mentions = Counter(blocks)
        super().free(blocks)
        again = [block for block in mentions if not self.refcounts[block] for _ in range(mentions[block] - 1)]
        self.blocks.free_ids.extendleft(again)


def test_holders_of_the_same_blocks_give_them_up_in_one_call() -> None:
    judge = PoolJudge(OwnPool(), PoolConfig(num_gpu_blocks=4))
    assert all(judge.apply(operation) for operation in [*SHARED, ("give", 1, (2, 2, 9, 1))])
    assert judge.coverage["a block twice in one call"] == 1
    assert (judge.holders, judge.explainer.observed.free) == ({}, (4, 0))


def test_a_block_that_is_free_once_for_each_mention_is_found_and_shortened() -> None:
    done = walk(POOLS, CountsAtTheEnd(), 1, max_operations=20_000, seconds=100)
    assert done.counterexample is not None
    short = shrink(CountsAtTheEnd(), done.counterexample, 20)
    assert short.finding.property == "lists-agree"
    assert len(short.operations) == 3
    assert short.operations[-1][0] == "give"
    assert len(short.operations[-1][2]) == 1


def test_the_same_blocks_given_up_one_holder_after_the_other_show_nothing() -> None:
    judge = PoolJudge(CountsAtTheEnd(), PoolConfig(num_gpu_blocks=4))
    assert all(judge.apply(operation) for operation in [*SHARED, ("give", 1), ("give", 2)])
    judge = PoolJudge(CountsAtTheEnd(), PoolConfig(num_gpu_blocks=4))
    with pytest.raises(Finding, match="twice"):
        [judge.apply(operation) for operation in [*SHARED, ("give", 1, (2,))]]
