"""Pairs of engines may differ in what they hold, read and say. None is refuted; each broken neighbour is."""

from typing import Any

import pytest
from tests.lawful import pairs, pushing_pair, ranked_pairs
from tests.lawful.test_lawful_managers import LONG, walked


@pytest.mark.parametrize("subject", [*pairs.LAWFUL, *ranked_pairs.LAWFUL, pushing_pair.PushingPair])
def test_it_is_not_refuted(subject: type[Any]) -> None:
    done = walked(subject(), 4_000)
    assert done.finding is None, (done.finding.text, done.counterexample and done.counterexample.operations)
    assert done.coverage["arrived"]
    assert done.coverage["rest"]


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("subject", [*pairs.LAWFUL, *ranked_pairs.LAWFUL, pushing_pair.PushingPair])
def test_it_is_not_refuted_by_a_long_walk(subject: type[Any]) -> None:
    done = walked(subject(), LONG)
    assert done.finding is None, (done.finding.text, done.counterexample and done.counterexample.operations)


@pytest.mark.parametrize(("subject", "property"), [*pairs.BROKEN, *ranked_pairs.BROKEN, *pushing_pair.BROKEN])
def test_a_broken_neighbour_is_refuted(subject: type[Any], property: str) -> None:
    finding = walked(subject(), 20_000).finding
    assert finding is not None
    assert finding.property == property
