"""Pools may report what they cache in their own way, as long as a listener believes what is so. None is refuted.

By default each does two thousand operations. `pytest -m long tests/lawful` does more of each.
"""

import pytest
from tests.lawful.pools import BROKEN, LAWFUL, Reports
from tests.lawful.test_lawful_managers import LONG, walked

from kvproof.check.search.exhaustive.pool import SHORT_SCOPES
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.strategies import POOLS


def judged(pool: type[Reports], num_operations: int) -> None:
    done = walked(pool(), num_operations)
    assert done.finding is None, (done.finding.text, done.counterexample and done.counterexample.operations)
    assert done.coverage["a content in two blocks"]


@pytest.mark.parametrize("pool", LAWFUL, ids=lambda pool: pool.__name__)
def test_a_lawful_pool_is_not_refuted(pool: type[Reports]) -> None:
    judged(pool, 2_000)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("pool", LAWFUL, ids=lambda pool: pool.__name__)
def test_a_lawful_pool_is_not_refuted_by_a_long_walk(pool: type[Reports]) -> None:
    judged(pool, LONG)


@pytest.mark.parametrize("pool", LAWFUL, ids=lambda pool: pool.__name__)
def test_a_lawful_pool_is_not_refuted_in_a_small_scope(pool: type[Reports]) -> None:
    done = explore(POOLS, pool(), SHORT_SCOPES["pages"], seconds=10.0)
    assert done.finding is None, done.finding.text


@pytest.mark.parametrize("pool", BROKEN, ids=lambda pool: pool.__name__)
def test_a_pool_that_reports_what_is_not_so_is_refuted(pool: type[Reports]) -> None:
    finding = walked(pool(), 20_000).finding
    assert finding is not None
    assert finding.property == "events-agree"
