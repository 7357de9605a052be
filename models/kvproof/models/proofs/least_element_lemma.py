"""A lemma about finite sets: a set that is not empty has a member such that no other member goes before it.

`before` is any relation that is transitive and in which nothing goes before itself. The set is one of numbers below an
end. The lemma is proved by induction on the end (suite arithmetic, `LEMMA`): the least member among the numbers below
n + 1 is n itself, if n is a member and goes before the least member below n, or if there is none below n; else it is
the least member below n.

A contract whose choice is such a member (`kvproof.spec.language.Least`) has no function that computes it, so its proof
uses the lemma: `some` member of the set is known, and `chosen` is a constant of which nothing else is known.
"""

from collections.abc import Callable, Iterator

import z3

from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.translation.terms import Number, Truth, conjunction, implication

LEMMA = "a finite set that is not empty has a least member"
PROPERTY = "eviction-order"  # the property whose proof uses it
Members = Callable[[Number], Truth]
Before = Callable[[Number, Number], Truth]


def is_least(one: Number, end: Number, members: Members, before: Before) -> Truth:
    """Whether the number is a member below the end, and no other member below the end goes before it."""
    other = z3.Int("other_member")
    goes_first = z3.Implies(z3.And(0 <= other, other < end, members(other)), z3.Not(before(other, one)))
    return conjunction(0 <= one, one < end, members(one), z3.ForAll([other], goes_first))


def by_lemma(some: Number, chosen: Number, end: Number, members: Members, before: Before) -> Hypothesis:
    """The lemma for one set: if `some` is a member below the end, `chosen` is a least one."""
    is_not_empty = conjunction(0 <= some, some < end, members(some))
    return Hypothesis(LEMMA, implication(is_not_empty, is_least(chosen, end, members, before)))  # type: ignore[arg-type]


def obligations(suite: str) -> Iterator[Obligation]:
    """The proof of the lemma, for any set and any such relation."""
    numbers = z3.IntSort()
    members, before = (
        z3.Function("member", numbers, z3.BoolSort()),
        z3.Function("before", numbers, numbers, z3.BoolSort()),
    )
    some, end, one, other, third = z3.Ints("some_member end one other third")
    order = (
        Hypothesis("nothing goes before itself", z3.ForAll([one], z3.Not(before(one, one)))),
        Hypothesis(
            "what goes before another goes before all that the other goes before",
            z3.ForAll(
                [one, other, third],
                z3.Implies(z3.And(before(one, other), before(other, third)), before(one, third)),
            ),
        ),
    )
    least = z3.Function("least_below", numbers, numbers)  # of the members below each end, if there are any

    def holds(end: z3.ArithRef) -> z3.BoolRef:
        is_there = z3.Implies(z3.And(0 <= some, some < end, members(some)), is_least(least(end), end, members, before))
        return z3.ForAll([some], is_there)

    is_empty = z3.ForAll([some], z3.Implies(z3.And(0 <= some, some < end), z3.Not(members(some))))
    is_next = z3.And(members(end), z3.Or(is_empty, before(end, least(end))))
    steps = Hypothesis("the least member below the next end", least(end + 1) == z3.If(is_next, end, least(end)))
    below = (Hypothesis("the end", 0 <= end), Hypothesis("the lemma below the end", holds(end)))
    yield Obligation(suite, LEMMA, "below zero there is no member", PROPERTY, (), holds(z3.IntVal(0)))
    yield Obligation(suite, LEMMA, "one number more", PROPERTY, (*order, *below, steps), holds(end + 1))
