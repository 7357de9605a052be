"""The lemma about products that a solver may not find by itself: of two numbers of blocks, the lesser has less slots.

`n // size` is some q with q * size <= n < q * size + size; that two such quotients are the same, or that one is the
lesser, follows once their products with the size are compared. Which products those are, of unknowns with unknowns, is
what solvers are bad at guessing. The lemma itself is proved for any two numbers (suite arithmetic, `LEMMA`); here it is
said of the numbers at hand.
"""

from collections.abc import Iterator

import z3

from kvproof.models.proofs.obligation import Hypothesis

LEMMA = "the lesser number of blocks has less slots"


def lesser_has_less(size: z3.ArithRef, *numbers: z3.ArithRef) -> z3.BoolRef:
    """Of each two of the numbers, the lesser has less slots, by a block's slots at least. True where a size is."""
    pairs = [(one, other) for one in numbers for other in numbers if one is not other]
    return z3.And([z3.Implies(one < other, one * size + size <= other * size) for one, other in pairs])


def by_lemma(size: z3.ArithRef, *numbers: z3.ArithRef) -> Hypothesis:
    """The lemma, said of these numbers."""
    return Hypothesis(LEMMA, lesser_has_less(size, *numbers))


def by_lemma_where_divided(size: z3.ArithRef, goal: z3.BoolRef, *assumed: z3.BoolRef) -> tuple[Hypothesis, ...]:
    """The lemma, said of every quotient by the size in the goal and every number that is multiplied with it.

    Nothing if the goal divides by something else or not at all. What stands under a quantifier is left alone.
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
    """Every term of the formula once, but for those under quantifiers."""
    seen: set[int] = set()
    left = [formula]
    while left:
        term = left.pop()
        if term.get_id() not in seen and not z3.is_quantifier(term):
            seen.add(term.get_id())
            yield term
            left += term.children()
