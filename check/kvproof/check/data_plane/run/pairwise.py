"""A small part of a matrix that holds every value of each axis with every value of every other.

Greedy: while some pair of values is in no chosen row, take the first such pair and give the other axes the values that
bring in the most pairs that are still missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

Row = tuple[str, ...]


def every_value(axes: Sequence[Sequence[str]]) -> list[Row]:
    """As many rows as the longest axis has values; each value is in one of them at least."""
    if not all(axes):
        return []
    return [tuple(axis[number % len(axis)] for axis in axes) for number in range(max(map(len, axes)))]


def every_pair(axes: Sequence[Sequence[str]]) -> list[Row]:
    """Rows in which any two values of two axes meet."""
    if not all(axes):
        return []
    if len(axes) < 2:
        return every_value(axes)
    missing = dict.fromkeys(
        ((first, a), (second, b))
        for first, second in combinations(range(len(axes)), 2)
        for a, b in product(axes[first], axes[second])
    )
    rows = []
    while missing:
        given = dict(next(iter(missing)))
        for index in sorted(range(len(axes)), key=lambda i: -len(axes[i])):
            if index not in given:
                given[index] = max(
                    axes[index], key=lambda value: sum(pair in missing for pair in _pairs_with(given, index, value))
                )
        rows.append(tuple(given[index] for index in range(len(axes))))
        for pair in combinations(enumerate(rows[-1]), 2):
            missing.pop(pair, None)
    return rows


def _pairs_with(given: dict[int, str], index: int, value: str) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    """The pairs that a value makes with those that are given already."""
    for other, known in given.items():
        first, second = sorted(((other, known), (index, value)))
        yield first, second
