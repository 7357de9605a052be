"""Plain integer functions as terms: the same numbers as Python, and demands where Python would raise."""

import enum
import functools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import z3

from kvproof.impl.admission import AllocStatus, admission
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.integer_functions import Translated, _source, ordinal, translate_function

LOW, HIGH = -9, 9


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


def graded(number: int, step: int) -> int:
    """Returns in every kind of place."""
    if number < 0:
        return -number % step
    elif number == 0:
        pass
    else:
        number = number * 2
        if number > 2 * step:
            return -(-number // step)
    number += 1
    return number if number < step <= 2 * number or number == 3 else max(number, step, 2) - min(number, step)


def sized(number: int, limit: int = 3) -> Size:
    return Size.LARGE if abs(number) > limit else Size.SMALL


def through_others(number: int, step: int) -> int:
    is_large = sized(number, limit=step) == Size.LARGE
    return graded(number, step) + is_large + (not is_large)


def error_boundary(number: int, step: int) -> int:
    if step < 1:
        raise ValueError(f"{step} is below 1")
    assert number >= 0, "a count"
    return number // step


def blocks_of(tokens: list[int], block_size: int) -> int:
    return -(-len(tokens) // block_size)


def value_of(term: Any, **numbers: int) -> int:
    if not isinstance(term, z3.ExprRef):
        return int(term)
    given = [(z3.Int(name), z3.IntVal(number)) for name, number in numbers.items()]
    found = z3.simplify(z3.substitute(term, *given))
    return int(z3.is_true(found)) if z3.is_bool(found) else int(found.as_long())


def are_met(translated: Translated, **numbers: int) -> bool:
    return all(value_of(demand.formula, **numbers) == 1 for demand in translated.demands)


@pytest.mark.parametrize("function", [graded, through_others])
def test_a_function_has_the_value_that_python_gives(function: Callable[..., int]) -> None:
    number, step = z3.Ints("number step")
    translated = translate_function(function, {"number": number, "step": step})
    for _ in range(150):
        given = {"number": Random(_).randint(LOW, HIGH), "step": Random(-_).randint(1, HIGH)}
        assert are_met(translated, **given), given
        assert value_of(translated.value, **given) == function(**given), given


def test_known_arguments_give_a_known_value_and_no_solver_is_asked() -> None:
    assert translate_function(graded, {"number": 7, "step": 3}).value == graded(7, 3)
    assert translate_function(sized, {"number": -4}).value == ordinal(Size.LARGE)


def test_a_divisor_must_be_positive() -> None:
    number, step = z3.Ints("number step")
    translated = translate_function(graded, {"number": number, "step": step})
    assert {demand.text.rpartition(": ")[2] for demand in translated.demands} == {"step is positive"}
    assert are_met(translated, number=-1, step=1)
    assert not are_met(translated, number=-1, step=0)
    assert not are_met(translated, number=-1, step=-2)
    assert are_met(translated, number=0, step=-2)  # nothing is divided there


def test_what_raises_is_a_demand_that_it_is_not_reached() -> None:
    number, step = z3.Ints("number step")
    translated = translate_function(error_boundary, {"number": number, "step": step})
    assert are_met(translated, number=3, step=2)
    assert not are_met(translated, number=3, step=0)
    assert not are_met(translated, number=-3, step=2)
    assert value_of(translated.value, number=7, step=2) == 3


def test_admission_answers_as_the_implementation_does() -> None:
    names = ("num_required", "num_free", "num_usable", "watermark_blocks")
    translated = translate_function(admission, {name: z3.Int(name) for name in names})
    answers = set()
    for seed in range(200):
        given = {name: Random(f"{seed} {name}").randint(0, 6) for name in names}
        answers.add(admission(**given))
        assert value_of(translated.value, **given) == ordinal(admission(**given)), given
    assert answers == set(AllocStatus)


def test_an_expression_is_given_a_term_by_its_source_text() -> None:
    translated = translate_function(blocks_of, {"len(tokens)": z3.Int("length"), "block_size": z3.Int("size")})
    assert value_of(translated.value, length=9, size=4) == 3
    places = [demand.place.rpartition(":")[0] for demand in translated.demands]
    assert [Path(place).name for place in places] == ["test_integer_functions.py"]


def test_what_has_no_meaning_is_refused_with_the_way_to_give_it_one() -> None:
    with pytest.raises(NotInLanguage, match=r"give it a term: arguments=\{'len\(tokens\)': …\}"):
        translate_function(blocks_of, {"block_size": 4})


def calls_itself(number: int) -> int:
    return calls_itself(number - 1)


def says_nothing(number: int) -> None:
    number += 1


def loops(number: int) -> int:
    for _ in range(3):
        number += 1
    return number


@pytest.mark.parametrize(
    ("function", "what"),
    [(calls_itself, "calls itself"), (says_nothing, "gives no number"), (loops, "For is not in the language")],
)
def test_a_function_outside_the_language_is_refused(function: Callable[[int], Any], what: str) -> None:
    with pytest.raises(NotInLanguage, match=what):
        translate_function(function, {"number": z3.Int("number")})


def test_a_function_that_a_decorator_changes_is_refused() -> None:
    @functools.wraps(graded)
    def more(number: int, step: int) -> int:
        return graded(number, step) + 1

    with pytest.raises(NotInLanguage, match="a decorator changes this function"):
        _source(more)
