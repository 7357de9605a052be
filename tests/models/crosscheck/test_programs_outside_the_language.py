"""Programs outside the language are refused, with the file and the line of the piece that is outside."""

import ast

import pytest
from tests.models.crosscheck.outside import (
    BODIES,
    PIECES,
    place_of_refusal,
    places_of_findings,
    refused,
    text_of,
    with_piece,
)
from tests.models.crosscheck.programs import whole_program
from tests.models.crosscheck.running import loaded

NUM_PROGRAMS = 12  # that take up the pieces in turn


def test_a_piece_outside_the_language_is_refused_with_its_line() -> None:
    for number, piece in enumerate(PIECES):
        first = number % NUM_PROGRAMS
        assert any(refused(piece, seed) for seed in range(first, first + 20)), piece


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_piece_outside_the_language_is_refused_in_many_programs() -> None:
    num_refused = sum(refused(piece, seed) for piece in PIECES for seed in range(20))
    print(f"{num_refused:,} programs outside the language were refused")
    assert num_refused > 10 * len(PIECES)


@pytest.mark.parametrize("body", BODIES)
def test_a_function_that_is_not_one_return_is_refused_with_its_line(body: str) -> None:
    for seed in range(5):
        tree = ast.parse(whole_program(seed).source)
        (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "amount")
        with loaded(ast.unparse(tree)) as program:
            function.body = ast.parse("def f():\n    " + body.replace("\n", "\n    ")).body[0].body  # type: ignore[attr-defined]
            faulty = ast.unparse(tree)
            places = places_of_findings(text_of(faulty, program))
        lines = faulty.splitlines()
        first = next(number for number, line in enumerate(lines, 1) if line.startswith("def amount"))
        assert f"kvproof/generated/program.py:{first}" in places


def test_a_field_without_domains_is_refused_where_it_is_read() -> None:
    source = whole_program(0).source.replace("class State:", "class State:\n    f9: object = real(to=COUNTS)")
    with loaded(source) as program:
        faulty, lines = with_piece(source, "x = state.f9 + 1", 0)
        (place,) = place_of_refusal(faulty, program)
    assert int(place.rpartition(":")[2]) in lines
