"""Groups, sequences, requests and holders of a run are numbered from 1; other numbers stay."""

import pytest

from kvproof.check.search.renumbering import renumbered
from kvproof.spec.trace import Operation


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (
            [("new", 7, (9, 12), (5,), (None, 0, None), (), (30, (8,))), ("fork", 9, 40), ("free", 12)],
            [("new", 1, (1, 2), (5,), (None, 0, None), (), (3, (8,))), ("fork", 1, 4), ("free", 2)],
        ),
        (
            [("take", 5, 9), ("share", 5, 8), ("give", 8, (5,)), ("find", (9,))],
            [("take", 1, 9), ("share", 1, 2), ("give", 2, (1,)), ("find", (9,))],
        ),
        (
            [("add", 6, (8,), (3,), 2), ("complete", (5,), ((8, 12),), (12,), (8,)), ("abort", 6)],
            [("add", 1, (1,), (3,), 2), ("complete", (5,), ((1, 2),), (2,), (1,)), ("abort", 1)],
        ),
        (
            [("add", 6, (8,), (3,), 2, (None, 0, None), (), None, (5, True)), ("abort", 6)],
            [("add", 1, (1,), (3,), 2, (None, 0, None), (), None, (5, True)), ("abort", 1)],
        ),
    ],
    ids=["manager", "pool", "scheduler", "a prompt that is elsewhere"],
)
def test_each_kind_is_numbered_by_its_first_appearance(operations: list[Operation], expected: list[Operation]) -> None:
    assert repr(renumbered(operations)) == repr(expected)  # True is not 1 in a trace
    assert renumbered(expected) == expected
