"""Symbolic numbers fork where Python must know, and nowhere else; every path is taken once."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import z3

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import in_memory
from kvproof.models.concolic.exploration import Exploration, NoSuchState, NotRepeatable
from kvproof.models.concolic.scenario import Inputs, NotAssumed
from kvproof.models.concolic.symbolic import (
    SymbolicInt,
    Undecided,
    at,
    both,
    chosen,
    count_of,
    either,
    equal,
    implies,
    negated,
    same_truth,
    truth,
)


def results(run: Callable[[Inputs], Any]) -> list[Any]:
    """What a run gives on each of its paths."""
    exploration, found = Exploration(), []

    def once() -> None:
        found.append(run(Inputs(assume=exploration.assume)))

    for _ in exploration.paths(once):
        pass
    return found


def test_a_comparison_forks_once_for_each_possible_answer() -> None:
    def sign(inputs: Inputs) -> str:
        number = inputs.integer("number")
        if number < 0:
            return "negative"
        return "positive" if number > 0 else "zero"

    assert sorted(results(sign)) == ["negative", "positive", "zero"]


def test_an_answer_that_follows_from_the_path_does_not_fork() -> None:
    def twice(inputs: Inputs) -> tuple[bool, bool]:
        number = inputs.integer("number")
        return bool(number > 5), bool(number > 3)

    assert sorted(results(twice)) == [(False, False), (False, True), (True, True)]


def test_an_index_and_a_key_take_every_value_they_can_have() -> None:
    def look_up(inputs: Inputs) -> tuple[str, int]:
        place = inputs.below("place", 3)
        return "abc"[place], {0: 10, 1: 11, 2: 12}[place]

    assert sorted(results(look_up)) == [("a", 10), ("b", 11), ("c", 12)]


def test_a_dict_of_ids_of_no_known_value_forks_on_equality() -> None:
    def look_up(inputs: Inputs) -> str | None:
        one, other, key = (inputs.identifier(name) for name in ("one", "other", "key"))
        inputs.assume(lambda: negated(one == other))
        return {one: "one", other: "other"}.get(key)

    assert Counter(results(look_up)) == Counter(["one", "other", None])


def test_paths_are_apart_and_complete() -> None:
    exploration, x = Exploration(), z3.Int("x")

    def run() -> None:
        sorted([SymbolicInt(x), SymbolicInt(z3.Int("y")), SymbolicInt(z3.Int("z"))])

    conditions = [z3.And(*condition) for condition in exploration.paths(run)]
    solver = z3.Solver()
    solver.add(z3.Not(z3.Or(*conditions)))
    assert solver.check() == z3.unsat
    for place, one in enumerate(conditions):
        for other in conditions[:place]:
            solver = z3.Solver()
            solver.add(one, other)
            assert solver.check() == z3.unsat
    assert len(conditions) > 4


def test_a_path_has_its_own_values_and_no_others_whatever_their_order() -> None:
    exploration, place = Exploration(), z3.Int("place")

    def run() -> None:
        made = Inputs(assume=exploration.assume).below("place", 3)
        "abc"[made]

    conditions = [str(z3.And(*condition)) for condition in exploration.paths(run)]
    assert sorted(conditions) == [str(z3.And(place == value)) for value in range(3)]


def test_a_run_that_asks_something_else_after_the_same_answers_is_refused() -> None:
    asked = iter(("x", "y", "y"))

    def run() -> None:
        bool(SymbolicInt(z3.Int(next(asked))) > 0)

    with pytest.raises(NotRepeatable, match="the run asked 0 < y, and after the same answers before 0 < x"):
        list(Exploration().paths(run))


def test_a_run_that_ends_before_its_questions_is_refused() -> None:
    asked = iter((["x"], []))

    def run() -> None:
        for name in next(asked):
            bool(SymbolicInt(z3.Int(name)) > 0)

    with pytest.raises(NotRepeatable, match="the run ended before it asked 0 < x again"):
        list(Exploration().paths(run))


@pytest.mark.parametrize("asks_solver", [True, False])
@pytest.mark.parametrize(
    ("function", "line", "replacement"),
    [
        ("Exploration._next_path", "if fork.is_open:", "if fork.is_open and len(self._forks) < 2:"),
        ("Exploration._next_path", "self._model = not fork.answer,", "self._model = fork.answer,"),
    ],
)
def test_an_answer_that_is_never_given_is_noticed(
    asks_solver: bool, function: str, line: str, replacement: str
) -> None:
    def run() -> None:
        for name in "xy":
            bool(SymbolicInt(z3.Int(name)) > 0)

    module = "kvproof.models.concolic.exploration"
    assert len(list(Exploration(asks_solver).paths(run))) == 4
    with in_memory(Edit(function, line, replacement), module), pytest.raises(AssertionError, match="led to a path for"):
        list(Exploration(asks_solver).paths(run))


def test_a_scenario_that_nothing_satisfies_proves_nothing() -> None:
    def run(inputs: Inputs) -> None:
        number = inputs.count("number")
        inputs.assume(lambda: number < 0)

    with pytest.raises(NoSuchState):
        results(run)


def test_numbers_that_are_not_assumed_are_not_replayed() -> None:
    with pytest.raises(NotAssumed):
        Inputs({"number": -1}).count("number")


def test_an_assumption_after_a_question_is_refused() -> None:
    def run(inputs: Inputs) -> None:
        number = inputs.integer("number")
        if number > 0:
            inputs.count("other")

    with pytest.raises(ValueError, match="before the first question"):
        results(run)


def test_a_specification_that_forks_outside_a_run_is_refused() -> None:
    with pytest.raises(Undecided, match="without if"):
        bool(SymbolicInt(z3.Int("x")) > 0)


def test_a_divisor_that_may_be_zero_is_refused() -> None:
    def run(inputs: Inputs) -> str:
        try:
            return str(inputs.integer("number") // inputs.count("divisor"))
        except ArithmeticError:
            return "refused"

    assert "refused" in results(run)
    assert len(results(run)) == 2


@pytest.mark.parametrize("numbers", [(0, 0), (1, 2), (2, 1), (-3, 2), (-4, 3), (5, 5)])
def test_terms_compute_what_python_computes(numbers: tuple[int, int]) -> None:
    def everything(a: Any, b: Any) -> list[Any]:
        items = [a, b, 7]
        return [
            a + b, 3 - a, a - 1, -b, 2 * a, a < b, a <= b, a > b, a >= b, equal(a, b), a != b,
            both((a > 0, b > 0)), either((a > 0, b > 0)), implies(a > 0, b > 0), same_truth(a > 0, b > 0),
            chosen(a > b, a, b), count_of(a, items), at(items, chosen(a > b, 0, 2)), 5 - (a == b), (a > 0) + (b > 0),
        ]  # fmt: skip

    def evaluated(value: Any) -> Any:
        pairs = [(term, z3.IntVal(n)) for term, n in zip((z3.Int("a"), z3.Int("b")), numbers, strict=True)]
        if isinstance(value, SymbolicInt):
            return z3.simplify(z3.substitute(value.term, *pairs)).as_long()
        return z3.is_true(z3.simplify(z3.substitute(truth(value), *pairs)))

    symbolic = everything(SymbolicInt(z3.Int("a")), SymbolicInt(z3.Int("b")))
    assert [evaluated(value) for value in symbolic] == everything(*numbers)


@pytest.mark.parametrize("dividend", range(-5, 6))
def test_division_rounds_as_python_does(dividend: int) -> None:
    def run(inputs: Inputs) -> Any:
        number, divisor = inputs.integer("number"), inputs.integer("divisor")
        inputs.assume(lambda: both((number == dividend, divisor == 3)))
        return int(number // divisor), int(number % divisor)

    assert results(run) == [(dividend // 3, dividend % 3)]
