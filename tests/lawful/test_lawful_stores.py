"""Stores that evict the least recently used key first may differ in what they count as a use. None is refuted.

By default each does two thousand operations. `pytest -m long tests/lawful` does more of each.
"""

import pytest
from tests.lawful.stores import BROKEN, LAWFUL, Lru
from tests.lawful.test_lawful_managers import LONG, walked

from kvproof.check.oracle.store.recency import WITNESS
from kvproof.check.search.exhaustive.store import SHORT_SCOPES
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.strategies import STORES


def judged(store: type[Lru], num_operations: int) -> None:
    done = walked(store(), num_operations)
    assert done.finding is None, (done.finding.text, done.counterexample and done.counterexample.operations)
    assert done.coverage[WITNESS]


@pytest.mark.parametrize("store", LAWFUL, ids=lambda store: store.__name__)
def test_a_lawful_store_is_not_refuted(store: type[Lru]) -> None:
    judged(store, 2_000)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("store", LAWFUL, ids=lambda store: store.__name__)
def test_a_lawful_store_is_not_refuted_by_a_long_walk(store: type[Lru]) -> None:
    judged(store, LONG)


@pytest.mark.long
@pytest.mark.parametrize("scope", SHORT_SCOPES)
@pytest.mark.parametrize("store", LAWFUL, ids=lambda store: store.__name__)
def test_a_lawful_store_is_not_refuted_in_a_small_scope(store: type[Lru], scope: str) -> None:
    done = explore(STORES, store(), SHORT_SCOPES[scope], seconds=10.0)
    assert done.finding is None, done.finding.text


@pytest.mark.parametrize("store", BROKEN, ids=lambda store: store.__name__)
def test_a_store_that_evicts_in_another_order_is_refuted(store: type[Lru]) -> None:
    finding = walked(store(), 20_000).finding
    assert finding is not None
    assert finding.property == "eviction-order"
