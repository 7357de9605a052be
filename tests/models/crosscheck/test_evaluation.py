"""Terms are evaluated as Z3 evaluates them, and a bound of an endless domain is never assumed to suffice."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import z3

from kvproof.models.crosscheck.evaluation import CannotEvaluate, evaluate
from kvproof.models.crosscheck.interpretation import Interpretation, OutOfDomain, Rows, Tail, Undecided

X, Y, N = z3.Ints("x y n")
F = z3.Function("f", z3.IntSort(), z3.IntSort())
G = z3.Function("g", z3.IntSort(), z3.IntSort(), z3.BoolSort())


def meaning(row: list[int], *, has_end: bool = True, end: int = 0, **numbers: int | bool) -> Interpretation:
    f = Rows("f", row, [len(row)], [has_end], lambda _: 0)
    g = Rows("g", [[False, True], [True, False]], [2, 2], [True, True], lambda *_: False)
    return Interpretation({"f": f, "g": g, **numbers}, end)


def drawn_number(random: Random, depth: int) -> Any:
    if depth == 0:
        return random.choice([X, Y, z3.IntVal(random.randrange(-3, 4))])
    one, other = drawn_number(random, depth - 1), drawn_number(random, depth - 1)
    divisor = random.randrange(1, 4)
    return random.choice(
        [
            one + other,
            one - other,
            one * other,
            -one,
            one / divisor,
            one % divisor,
            z3.If(drawn_truth(random, depth - 1), one, other),
        ]
    )


def drawn_truth(random: Random, depth: int) -> Any:
    number, another = drawn_number(random, depth), drawn_number(random, depth)
    if depth == 0:
        return random.choice([number < another, number <= another, number == another, number != another])
    one, other = drawn_truth(random, depth - 1), drawn_truth(random, depth - 1)
    return random.choice(
        [
            number > another,
            number >= another,
            z3.And(one, other, one),
            z3.Or(one, other),
            z3.Not(one),
            z3.Implies(one, other),
            one == other,
            one != other,
            z3.If(one, other, z3.Not(other)),
        ]
    )


def test_terms_without_functions_have_the_value_that_z3_gives_them() -> None:
    random = Random(1)
    for _ in range(400):
        term = random.choice([drawn_number, drawn_truth])(random, 2)
        x, y = random.randrange(-5, 6), random.randrange(-5, 6)
        expected = z3.simplify(z3.substitute(term, (X, z3.IntVal(x)), (Y, z3.IntVal(y))))
        native = z3.is_true(expected) if z3.is_bool(expected) else expected.as_long()
        assert evaluate(term, Interpretation({"x": x, "y": y}, 0)) == native, term


def test_functions_are_read_at_their_indexes_and_quantifiers_run_over_their_own_bounds() -> None:
    within = z3.And(0 <= X, X < N)
    assert evaluate(F(F(1)) + F(0), meaning([4, 2, 7])) == 11
    assert evaluate(z3.ForAll([X], z3.Implies(within, F(X) > 0)), meaning([1, 2, 0], n=2)) is True
    assert evaluate(z3.ForAll([X], z3.Implies(within, F(X) > 0)), meaning([1, 2, 0], n=3)) is False
    assert evaluate(z3.Exists([X], z3.And(within, F(X) == 0)), meaning([1, 2, 0], n=3)) is True
    assert evaluate(z3.Exists([X], z3.And(within, F(X) == 0)), meaning([1, 2, 0], n=2)) is False
    both = z3.And(0 <= X, X < 2, 0 <= Y, Y <= X)
    assert evaluate(z3.ForAll([X, Y], z3.Implies(both, G(X, Y) == (X != Y))), meaning([])) is True
    nested = z3.ForAll([X], z3.Implies(within, z3.Exists([Y], z3.And(z3.And(0 <= Y, Y < N), G(X, Y)))))
    assert evaluate(nested, meaning([], n=2)) is True


def test_a_long_term_is_split_into_functions_and_keeps_its_value() -> None:
    chain: Any = F(X)
    for number in range(150):
        chain = z3.If(Y == number, number + F(X), chain)
    total = z3.ForAll([X], z3.Implies(z3.And(0 <= X, X < 2), chain + chain == 2 * (149 + F(X))))
    assert evaluate(total, meaning([4, 2], y=149)) is True
    assert evaluate(total, meaning([4, 2], y=148)) is False


def test_a_value_that_depends_on_what_no_domain_has_is_refused() -> None:
    with pytest.raises(OutOfDomain, match="f is read at 3"):
        evaluate(F(3), meaning([4, 2, 7]))
    with pytest.raises(OutOfDomain, match="f is read at -1"):
        evaluate(F(-1), meaning([4, 2, 7], has_end=False))
    with pytest.raises(OutOfDomain, match="divided by 0"):
        evaluate(F(0) / X, meaning([4], x=0))
    assert evaluate(z3.Implies(X < 3, F(X) > 0), meaning([4, 2, 7], x=3)) is True
    assert evaluate(F(3), meaning([4, 2, 7], has_end=False)) == 0


def test_a_quantifier_without_end_is_decided_for_all_numbers_or_not_at_all() -> None:
    endless = meaning([1, 2, 3], has_end=False, n=20)
    for_all = z3.ForAll([X], z3.Implies(0 <= X, z3.Implies(X < 3, F(X) > 0)))
    assert evaluate(for_all, endless) is True
    assert evaluate(z3.ForAll([X], z3.Implies(0 <= X, F(X) >= 0)), endless) is True
    assert evaluate(z3.ForAll([X], z3.Implies(0 <= X, F(X) > 0)), endless) is False  # it is 0 past the end
    assert evaluate(z3.Exists([X], z3.And(0 <= X, X > 2 * N)), endless) is True
    assert evaluate(z3.Exists([X], z3.And(0 <= X, X + 3 < F(X))), endless) is False
    beyond = meaning([1, 2, 3], has_end=False, n=20)
    assert evaluate(z3.ForAll([X], z3.Implies(0 <= X, X != N)), beyond) is False  # the bound is raised to 20
    with pytest.raises(Undecided):
        evaluate(z3.ForAll([X], z3.Implies(0 <= X, X % 2 >= 0)), meaning([]))
    with pytest.raises(CannotEvaluate, match="there is no least x"):
        evaluate(z3.ForAll([X], F(X) > 0), endless)


def test_a_comparison_with_a_tail_holds_for_all_of_its_numbers() -> None:
    tail, other = Tail(5), Tail(5)
    assert tail >= 5
    assert tail + 2 > 6
    assert not 2 * tail - 1 < 9
    assert tail - tail == 0
    assert (2 * tail + 1) // 2 >= 5
    assert (2 * tail + 1) % 2 == 1
    comparisons: list[Callable[[], object]] = [
        lambda: tail >= 6,
        lambda: tail == 7,
        lambda: tail <= other,
        lambda: tail // 2,
        lambda: 9 - tail < 0,
    ]
    for comparison in comparisons:
        with pytest.raises(Undecided):
            comparison()
