"""Stores may differ in what they count as a use, and pools in how they report what they cache. None is refuted.

By default each does two thousand operations. `pytest -m long tests/lawful` does more of each.
"""

from typing import Any

import pytest
from tests.lawful import pools, stores
from tests.lawful.test_lawful_managers import LONG, walked

from kvproof.check.oracle.store.recency import WITNESS
from kvproof.check.search.exhaustive import pool as scopes_of_pools
from kvproof.check.search.exhaustive import store as scopes_of_stores
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.strategies import POOLS, STORES

COPIES = "a content in two blocks"
LAWFUL = [*((one, WITNESS) for one in stores.LAWFUL), *((one, COPIES) for one in pools.LAWFUL)]
BROKEN = [*((one, "eviction-order") for one in stores.BROKEN), *((one, "events-agree") for one in pools.BROKEN)]
SCOPES = [
    *((STORES, one, scope) for one in stores.LAWFUL for scope in scopes_of_stores.SHORT_SCOPES.values()),
    *((POOLS, one, scope) for one in pools.LAWFUL for scope in scopes_of_pools.SHORT_SCOPES.values()),
]


def judged(subject: type[Any], witness: str, num_operations: int) -> None:
    done = walked(subject(), num_operations)
    assert done.finding is None, (done.finding.text, done.counterexample and done.counterexample.operations)
    assert done.coverage[witness]


@pytest.mark.parametrize(("subject", "witness"), LAWFUL)
def test_it_is_not_refuted(subject: type[Any], witness: str) -> None:
    judged(subject, witness, 2_000)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("subject", "witness"), LAWFUL)
def test_it_is_not_refuted_by_a_long_walk(subject: type[Any], witness: str) -> None:
    judged(subject, witness, LONG)


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "subject", "scope"), SCOPES)
def test_it_is_not_refuted_in_a_small_scope(strategy: Any, subject: type[Any], scope: Any) -> None:
    done = explore(strategy, subject(), scope, seconds=10.0)
    assert done.finding is None, done.finding.text


@pytest.mark.parametrize(("subject", "property"), BROKEN)
def test_a_broken_neighbour_is_refuted(subject: type[Any], property: str) -> None:
    finding = walked(subject(), 20_000).finding
    assert finding is not None
    assert finding.property == property
