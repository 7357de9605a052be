"""A search takes no place that there is not: none below 0, which Python counts from the end, and none beyond a row."""

import ast
from typing import Any

import pytest

from kvproof.check.search.exhaustive.places import machine_for_searches
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.syntax_trees import Functions, functions

TEXT = """
def cell(row, place):
    return row[place]
def of_a_value(row, rows):
    return row[rows[0][0]]
def of_a_variable(row, b):
    return all([row[b] for b in BLOCKS]) and row[b]
def replaced(row, place):
    return put(row, place, 7)
def mixed(one, other, start, stop):
    return spliced(one, start, stop, other)
def agree(one, other, stop):
    return same(one, other, stop)
"""
SIZES = Sizes(1, 0, 3, 1, 1)


def text_of(source: str) -> Functions:
    return functions() | {
        one.name: (one, "<text>") for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)
    }


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cell", ([1, 2, 3], -1)),
        ("of_a_value", ([1, 2, 3], [[-1]])),
        ("of_a_variable", ([1, 2, 3], -1)),
        ("replaced", ([1, 2, 3], -1)),
        ("replaced", ([1, 2, 3], 3)),
        ("mixed", ([1, 2, 3], [4, 5, 6], -1, 2)),
        ("mixed", ([1, 2, 3], [4, 5, 6], 2, 1)),
        ("mixed", ([1, 2, 3], [4, 5, 6], 0, 4)),
        ("agree", ([1, 2, 3], [1, 2, 9], -1)),
        ("agree", ([1, 2, 3], [1, 2, 3], 4)),
    ],
)
def test_a_place_that_there_is_not_is_refused_where_a_search_runs_the_text(
    name: str, arguments: tuple[Any, ...]
) -> None:
    searched, plain = (
        machine_for_searches(SIZES, with_ghosts=False, text=text_of(TEXT)),
        Machine(SIZES, text=text_of(TEXT)),
    )
    with pytest.raises(IndexError, match="there is no place"):
        searched.names[name](*arguments)
    plain.names[name](*arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cell", ([1, 2, 3], 2)),
        ("of_a_value", ([1, 2, 3], [[2]])),
        ("of_a_variable", ([1, 2, 3], 2)),
        ("replaced", ([1, 2, 3], 2)),
        ("mixed", ([1, 2, 3], [4, 5, 6], 0, 3)),
        ("agree", ([1, 2, 3], [1, 2, 9], 2)),
    ],
)
def test_a_place_that_there_is_has_its_value(name: str, arguments: tuple[Any, ...]) -> None:
    searched, plain = (
        machine_for_searches(SIZES, with_ghosts=False, text=text_of(TEXT)),
        Machine(SIZES, text=text_of(TEXT)),
    )
    assert searched.names[name](*arguments) == plain.names[name](*arguments)


def test_a_text_cannot_take_the_place_of_what_a_search_asks_with() -> None:
    hiding = text_of("def cell(row, place):\n    place_in_range = 1\n    return row[place]\n")
    with pytest.raises(ValueError, match="cell has the name place_in_range or place_within"):
        machine_for_searches(SIZES, with_ghosts=False, text=hiding)
