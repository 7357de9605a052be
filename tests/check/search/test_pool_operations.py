"""What random runs of a pool ask for: mostly what fits, and in half of the small runs blocks with many holders."""

from random import Random

import pytest

from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.search.pool_operations import PoolOperations
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import strategy_of
from kvproof.check.search.worlds import NUM_SMALL_RUNS
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.registry import find

SEED = 1


@pytest.fixture(scope="module")
def done() -> SearchResult:
    """The small runs of a walk of the built-in pool, without a finding."""
    subject = find("kvproof-pool")()
    limit = NUM_SMALL_RUNS * 60
    return walk(strategy_of(subject), subject, SEED, max_operations=limit, seconds=600, options=WalkOptions())


def test_few_allocations_are_refused_and_the_pool_is_often_full(done: SearchResult) -> None:
    assert done.counterexample is None
    refused, full = (done.coverage[what] / done.num_operations for what in ("refused", "pool full"))
    assert 0.005 < refused < 0.08
    assert full > 0.15


def test_blocks_often_have_three_holders_who_give_them_up_in_one_call(done: SearchResult) -> None:
    assert done.coverage["three holders"] > 0.4 * done.num_operations
    assert done.coverage["a block twice in one call"] > 0.05 * done.num_operations


def test_kinds_that_a_run_must_not_have_stay_absent_when_holders_mostly_share() -> None:
    absent = frozenset({"share", "reuse"})
    for seed in range(20):
        run = PoolOperations(OwnPool(), Random(seed), PoolConfig(num_gpu_blocks=8), absent)
        assert run.weights["share"] == run.weights["reuse"] == 0.0
