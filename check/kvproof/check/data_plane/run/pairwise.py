"""Pairwise (all-pairs) sampling: a small part of a matrix in which any two values of two axes occur together.

Greedy: while some pair of values is in no chosen row, take the first such pair, and choose for the other axes the
values that cover the most missing pairs.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

Row = tuple[str, ...]


def every_value(axes: Sequence[Sequence[str]]) -> list[Row]:
    """Rows that contain each value at least once; as many as the longest axis has values."""
    if not all(axes):
        return []
    return [tuple(axis[number % len(axis)] for axis in axes) for number in range(max(map(len, axes)))]


def every_pair(axes: Sequence[Sequence[str]]) -> list[Row]:
    """Rows that contain each pair of values of two axes at least once."""
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
    for other, known in given.items():
        first, second = sorted(((other, known), (index, value)))
        yield first, second
