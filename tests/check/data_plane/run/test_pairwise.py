"""A reduced matrix still holds every pair of values."""

from __future__ import annotations

from itertools import combinations, product

from kvproof.check.data_plane.run.pairwise import every_pair, every_value

AXES = [["a", "b", "c"], ["1", "2", "3", "4"], ["x", "y"], ["k"]]


def test_every_pair_of_values_meets() -> None:
    rows = every_pair(AXES)
    for first, second in combinations(range(4), 2):
        assert {(row[first], row[second]) for row in rows} == set(product(AXES[first], AXES[second]))
    assert 12 <= len(rows) <= 14 < 24  # the two longest axes alone need 3 × 4 rows


def test_every_value_is_there_with_as_few_rows_as_can_be() -> None:
    rows = every_value(AXES)
    assert len(rows) == 4
    assert all({row[index] for row in rows} == set(axis) for index, axis in enumerate(AXES))


def test_axes_without_values_give_no_rows() -> None:
    assert every_pair([["a"], []]) == every_value([["a"], []]) == []
    assert every_pair([["a", "b"]]) == [("a",), ("b",)]
