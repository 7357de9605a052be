"""A lemma about products that a solver may not find itself: of two numbers of blocks, the smaller has fewer slots.

`n // size` is some q with q * size <= n < q * size + size. That two such quotients are equal, or that one is smaller,
follows once their products with the size are compared. Solvers are bad at finding these products of two unknowns. The
lemma is proved for any two numbers (suite arithmetic, `LEMMA`); here it is instantiated with the numbers of a goal.
"""

from collections.abc import Iterator

import z3

from kvproof.models.obligation import Hypothesis

LEMMA = "the lesser number of blocks has less slots"


def lesser_has_less(size: z3.ArithRef, *numbers: z3.ArithRef) -> z3.BoolRef:
    """Of every two numbers, the smaller has fewer slots, by at least one block. It holds for every positive size."""
    pairs = [(one, other) for one in numbers for other in numbers if one is not other]
    return z3.And([z3.Implies(one < other, one * size + size <= other * size) for one, other in pairs])


def by_lemma(size: z3.ArithRef, *numbers: z3.ArithRef) -> Hypothesis:
    """The lemma, for these numbers."""
    return Hypothesis(LEMMA, lesser_has_less(size, *numbers))


def by_lemma_where_divided(size: z3.ArithRef, goal: z3.BoolRef, *assumed: z3.BoolRef) -> tuple[Hypothesis, ...]:
    """The lemma, for every quotient by the size in the goal and every number that is multiplied by the size.

    Returns nothing if the goal has no division by the size. Terms under a quantifier are ignored.
    """
    quotients = _distinct(one for one in _terms(goal) if z3.is_idiv(one) and one.arg(1).eq(size))
    if not quotients:
        return ()
    factors = _distinct(factor for formula in (goal, *assumed) for factor in _factors(formula, size))
    return tuple(by_lemma(size, quotient, factor, factor + 1) for quotient in quotients for factor in factors)


def _factors(formula: z3.BoolRef, size: z3.ArithRef) -> Iterator[z3.ArithRef]:
    for term in _terms(formula):
        if z3.is_mul(term) and term.num_args() == 2:
            for place in (0, 1):
                if term.arg(place).eq(size) and not z3.is_int_value(term.arg(1 - place)):
                    yield term.arg(1 - place)  # type: ignore[misc]  # what is multiplied is a number


def _distinct(terms: Iterator[z3.ExprRef]) -> list[z3.ArithRef]:
    return list({term.get_id(): term for term in terms}.values())  # type: ignore[arg-type]  # numbers, both


def _terms(formula: z3.ExprRef) -> Iterator[z3.ExprRef]:
    """Every term of the formula once, except those under quantifiers."""
    seen: set[int] = set()
    left = [formula]
    while left:
        term = left.pop()
        if term.get_id() not in seen and not z3.is_quantifier(term):
            seen.add(term.get_id())
            yield term
            left += term.children()
