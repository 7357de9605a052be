"""Plain integer functions as terms: the same numbers as Python, and demands where Python would raise."""

import enum
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import z3

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import in_memory
from kvproof.impl.admission import AllocStatus, admission
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.integer_functions import Translated, _source, ordinal, translate_function

TRANSLATOR = "kvproof.models.translation.integer_functions"

LOW, HIGH = -9, 9


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Weight(enum.IntEnum):
    LIGHT = 10
    HEAVY = 30


class Odd(enum.IntEnum):
    ONE = 1

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = enum.IntEnum.__hash__


LIMIT = 7


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


def weighed(number: int, step: int) -> int:
    weight = Weight.HEAVY if number > step else Weight.LIGHT
    return weight + (weight == 30) + number // Weight.LIGHT


def other_members(number: int, step: int) -> int:
    size = Size.SMALL if number < step else Size.LARGE
    is_red = size == Colour.RED  # type: ignore[comparison-overlap]
    is_not_blue = size != Colour.BLUE  # type: ignore[comparison-overlap]
    return is_red + 2 * is_not_blue + 4 * (Size.SMALL == size)


def taken(first: int, second: int = 2, /, *, third: int = LIMIT) -> int:
    return first - 2 * second + 3 * third + LIMIT


def keywords_and_defaults(number: int, step: int) -> int:
    return taken(number, third=step) + taken(step, number)


def positive(value: int) -> int:
    if value <= 0:
        raise ValueError(value)
    return value


def ends_on_one_side(number: int, step: int) -> int:
    return positive(number) if number > 0 else graded(number, step)


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


@pytest.mark.parametrize(
    "function", [graded, through_others, weighed, other_members, keywords_and_defaults, ends_on_one_side]
)
def test_a_function_has_the_value_that_python_gives(function: Callable[..., int]) -> None:
    compare(function, 150)


def compare(function: Callable[..., int], num_arguments: int) -> None:
    number, step = z3.Ints("number step")
    translated = translate_function(function, {"number": number, "step": step})
    for _ in range(num_arguments):
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


def reads_a_local_before_it_has_a_value(number: int) -> int:
    limit = LIMIT + number  # type: ignore[used-before-def]  # noqa: F823  # not the LIMIT of the module
    LIMIT = 3  # noqa: F841, N806
    return limit


def gives_too_many(number: int) -> int:
    return graded(number, 2, 3)  # type: ignore[call-arg]


def gives_one_twice(number: int) -> int:
    return graded(number, number=2)  # type: ignore[call-arg, misc]


def gives_too_few(number: int) -> int:
    return graded(number)  # type: ignore[call-arg]


def gives_by_position(number: int) -> int:
    return taken(number, 2, 3)  # type: ignore[call-arg]


def gives_a_dict(number: int) -> int:
    return graded(**{"number": number, "step": 1})  # noqa: PIE804


def gives_a_list(number: int) -> int:
    return graded(*[number, 1])


def adds_to_a_member(number: int) -> int:
    return number + Size.LARGE  # type: ignore[operator]


def orders_members(number: int) -> bool:
    return Size.SMALL < Size.LARGE  # type: ignore[operator, no-any-return]


def compares_a_member_with_a_number(number: int) -> bool:
    return Size.SMALL == number  # type: ignore[comparison-overlap]


def chooses_between_enumerations(number: int) -> bool:
    return (Size.SMALL if number > 0 else Colour.RED) == Colour.RED


def reads_no_member(number: int) -> int:
    return number if Size.HUGE == Size.SMALL else 0  # type: ignore[attr-defined]


def reads_odd_members(number: int) -> bool:
    return number == Odd.ONE


def chooses_between_texts(number: int) -> int:
    return 1 if ("a" if number > 0 else "b") == "a" else 0


def hides_a_function(number: int) -> int:
    graded = 3
    return graded(number, 1) + graded  # type: ignore[operator, no-any-return]


def hides_min(number: int) -> int:
    min = LIMIT
    return min(number, 3)  # type: ignore[operator, no-any-return]


def names_what_abs_takes(number: int) -> int:
    return abs(number, key=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (calls_itself, "calls itself"),
        (says_nothing, "gives no number"),
        (loops, "For is not in the language"),
        (reads_a_local_before_it_has_a_value, "the name LIMIT has no value here"),
        (gives_too_many, "graded cannot be called so: too many positional arguments"),
        (gives_one_twice, "graded cannot be called so: multiple values for argument 'number'"),
        (gives_too_few, "graded cannot be called so: missing a required argument: 'step'"),
        (gives_by_position, "taken cannot be called so: too many positional arguments"),
        (gives_a_dict, r"arguments given as \*\*"),
        (gives_a_list, r"\*\[number, 1\] has no value here"),
        (adds_to_a_member, "a member of Size is no number"),
        (orders_members, "a member of Size is no number"),
        (compares_a_member_with_a_number, "a member of Size is no number"),
        (chooses_between_enumerations, "give numbers, or members of one enumeration, on both sides"),
        (reads_no_member, "Size.HUGE has no value here"),
        (reads_odd_members, "members of Odd compare in their own way"),
        (chooses_between_texts, "give numbers, or members of one enumeration, on both sides"),
        (hides_a_function, r"graded\(number, 1\) has no value here"),
        (hides_min, r"min\(number, 3\) has no value here"),
        (names_what_abs_takes, "abs is no function of the language"),
    ],
)
def test_a_function_outside_the_language_is_refused(function: Callable[[int], Any], what: str) -> None:
    with pytest.raises(NotInLanguage, match=what) as refusal:
        translate_function(function, {"number": z3.Int("number")})
    first, lines = function.__code__.co_firstlineno, inspect.getsourcelines(function)[0]
    assert refusal.value.line in range(first, first + len(lines))
    assert Path(refusal.value.file).name == "test_integer_functions.py"


@pytest.mark.parametrize(
    ("function", "part", "line", "replacement"),
    [
        (
            weighed,
            "_FunctionExpressions._member",
            "int(found) if isinstance(found, int) else Member(",
            "(lambda *_: _[1])(",
        ),
        (other_members, "_FunctionExpressions._are_equal", "left.enumeration is right.enumeration and ", ""),
        (keywords_and_defaults, "_FunctionExpressions.called", "**defaults,", ""),
        (
            ends_on_one_side,
            "_FunctionExpressions._merged",
            "return no if isinstance(yes, _Nothing) else yes",
            "return yes",
        ),
    ],
)
def test_a_fault_of_this_translator_is_found(
    function: Callable[..., int], part: str, line: str, replacement: str
) -> None:
    fault = in_memory(Edit(part, line, replacement), TRANSLATOR)
    with fault, pytest.raises((AssertionError, NotInLanguage)):
        compare(function, 20)


def test_a_local_that_is_read_as_a_global_is_found() -> None:
    fault = in_memory(Edit("_names_outside", "if name not in own", ""), TRANSLATOR)
    with fault, pytest.raises(pytest.fail.Exception):
        test_a_function_outside_the_language_is_refused(reads_a_local_before_it_has_a_value, "LIMIT has no value")


def test_a_name_around_a_function_is_read_where_it_is() -> None:
    LIMIT = 2  # noqa: N806

    def around(number: int) -> int:
        return number + LIMIT

    assert translate_function(around, {"number": 1}).value == around(1)


def test_an_expression_that_reads_what_the_function_assigns_has_no_given_term() -> None:
    def grown(tokens: list[int], number: int) -> int:
        before = len(tokens)
        tokens = [*tokens, number]
        return len(tokens) - before

    given = {"len(tokens)": z3.Int("length"), "[*tokens, number]": 0, "number": z3.Int("number")}
    with pytest.raises(NotInLanguage, match=r"len\(tokens\) is given one term, and the function assigns tokens"):
        translate_function(grown, given)


def test_a_term_for_no_parameter_is_refused() -> None:
    with pytest.raises(NotInLanguage, match="sized has no parameter limits"):
        translate_function(sized, {"number": 1, "limits": 2})


def test_a_function_that_a_decorator_changes_is_refused() -> None:
    @functools.wraps(graded)
    def more(number: int, step: int) -> int:
        return graded(number, step) + 1

    with pytest.raises(NotInLanguage, match="a decorator changes this function"):
        _source(more)


def test_a_function_that_keeps_its_results_is_refused_with_its_line() -> None:
    with pytest.raises(NotInLanguage, match="a decorator changes this function") as refusal:
        _source(functools.lru_cache(graded))
    assert refusal.value.line == graded.__code__.co_firstlineno
