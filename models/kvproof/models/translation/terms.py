"""Terms: integers and truth values, known (Python's own) or unknown (Z3's).

Known values stay Python values as long as possible. So the same translation gives formulas on unknown states, and plain
values, without any call of Z3, on concrete states.

Division and remainder agree with Python for a positive divisor. Z3 rounds differently if the divisor is negative, so
each division demands a positive divisor (`Conditions.demand`).
"""

import operator
from collections.abc import Callable, Iterable

import z3

from kvproof.models.translation import building
from kvproof.models.translation.building import integer

SERIAL = "#"  # between the name of a variable and its serial number, until a quantifier binds it

Truth = z3.BoolRef | bool
Number = z3.ArithRef | int
Term = z3.BoolRef | z3.ArithRef | int  # Python's truth values are integers


def is_unknown(term: object) -> bool:
    return isinstance(term, z3.ExprRef)


def is_truth(term: object) -> bool:
    return isinstance(term, (bool, z3.BoolRef))


def formula(part: Truth) -> z3.BoolRef:
    """The truth value as a term of Z3."""
    return z3.BoolVal(part) if isinstance(part, bool) else part


def _terms(one: Number, other: Number) -> tuple[z3.ArithRef, z3.ArithRef]:
    """Two numbers, not both known, as terms of Z3."""
    if isinstance(one, int):
        assert not isinstance(other, int)
        return building.known(one, other), other
    return one, building.known(other, one) if isinstance(other, int) else other


def conjunction(*parts: Truth) -> Truth:
    unknown = [part for part in parts if not isinstance(part, bool)]
    if any(part is False for part in parts):
        return False
    return True if not unknown else unknown[0] if len(unknown) == 1 else building.conjoined(unknown)


def disjunction(*parts: Truth) -> Truth:
    unknown = [part for part in parts if not isinstance(part, bool)]
    if any(part is True for part in parts):
        return True
    return False if not unknown else unknown[0] if len(unknown) == 1 else building.disjoined(unknown)


def every(formulas: Iterable[z3.BoolRef]) -> z3.BoolRef:
    """The conjunction of the formulas; also of none or one, for which SMT-LIB has no `and`."""
    parts = list(formulas)
    return z3.BoolVal(True) if not parts else parts[0] if len(parts) == 1 else building.conjoined(parts)


def some(formulas: Iterable[z3.BoolRef]) -> z3.BoolRef:
    """The disjunction of the formulas; also of none or one."""
    parts = list(formulas)
    return z3.BoolVal(False) if not parts else parts[0] if len(parts) == 1 else building.disjoined(parts)


def negation(part: Truth) -> Truth:
    return not part if isinstance(part, bool) else building.negated(part)


def implication(condition: Truth, conclusion: Truth) -> Truth:
    return disjunction(negation(condition), conclusion)


def number(term: Term) -> Number:
    """The term as a number: as in Python, a true value is 1."""
    if isinstance(term, z3.BoolRef):
        return building.chosen_number(term, integer(1), integer(0))
    return int(term) if isinstance(term, bool) else term


def choice(condition: Truth, one: Term, other: Term) -> Term:
    """`one if condition else other`."""
    if isinstance(condition, bool):
        return one if condition else other
    if is_truth(one) != is_truth(other):
        one, other = number(one), number(other)
    if are_same(one, other):
        return one
    if isinstance(one, (bool, z3.BoolRef)):
        assert isinstance(other, (bool, z3.BoolRef))
        return building.chosen_truth(condition, formula(one), formula(other))
    assert not isinstance(other, z3.BoolRef)
    if isinstance(one, int) and isinstance(other, int):
        return building.chosen_number(condition, integer(one), integer(other))
    return building.chosen_number(condition, *_terms(one, other))


def are_same(one: Term, other: Term) -> bool:
    """Whether two terms are syntactically the same."""
    if isinstance(one, z3.ExprRef):
        return isinstance(other, z3.ExprRef) and building.are_identical(one, other)
    return not isinstance(other, z3.ExprRef) and one == other


def equal(one: Term, other: Term) -> Truth:
    """`one == other`."""
    if is_truth(one) != is_truth(other):
        one, other = number(one), number(other)
    if isinstance(one, int):
        one, other = other, one  # a known value comes last, as it does with Python's operators
    if isinstance(one, int):
        return one == other
    if isinstance(one, z3.BoolRef):
        assert isinstance(other, (bool, z3.BoolRef))
        return building.equated(one, formula(other))
    assert not isinstance(other, z3.BoolRef)
    return building.equated(*_terms(one, other))


def compared(sign: str, one: Number, other: Number) -> Truth:
    """`one < other`, or another comparison; `sign` is one of `< <= > >=`. Of two terms, a known one comes last."""
    if isinstance(one, int) and isinstance(other, int):
        return SIGNS[sign](one, other)
    if isinstance(one, int):
        sign, one, other = building.MIRRORED[sign], other, one
    return building.made(sign, *_terms(one, other))


SIGNS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARISONS = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}


def total(one: Number, other: Number) -> Number:
    """`one + other`."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    return building.total(*_terms(one, other))


def difference(one: Number, other: Number) -> Number:
    """`one - other`."""
    if isinstance(one, int) and isinstance(other, int):
        return one - other
    return building.difference(*_terms(one, other))


def quotient(one: Number, divisor: Number) -> Number:
    """`one // divisor`, for a positive divisor."""
    if isinstance(one, int) and isinstance(divisor, int):
        return one // divisor
    return one / divisor  # type: ignore[return-value]  # one of them is Z3's, whose `/` on integers is whole


def remainder(one: Number, divisor: Number) -> Number:
    """`one % divisor`, for a positive divisor."""
    return one % divisor


def least(*terms: Number) -> Number:
    """`min(…)`."""
    found = terms[0]
    for term in terms[1:]:
        found = number(choice(compared("<", term, found), term, found))
    return found


def greatest(*terms: Number) -> Number:
    """`max(…)`."""
    found = terms[0]
    for term in terms[1:]:
        found = number(choice(compared(">", term, found), term, found))
    return found


def is_between(low: Number, term: Number, end: Number | None) -> Truth:
    """`low <= term < end`; without end if None."""
    return conjunction(compared("<=", low, term), True if end is None else compared("<", term, end))


def for_all(variables: list[z3.ArithRef], known: Truth, body: Truth) -> Truth:
    """`body` for all values of the variables of which `known` holds."""
    if isinstance(body, bool) and body:
        return True
    return _quantified(True, variables, building.implied(formula(known), formula(body)))


def for_some(variables: list[z3.ArithRef], known: Truth, body: Truth) -> Truth:
    """`body` for some values of the variables of which `known` holds."""
    if isinstance(body, bool) and not body:
        return False
    return _quantified(False, variables, building.conjoined([formula(known), formula(body)]))


def bound_name(variable: z3.ArithRef) -> str:
    """The name under which a quantifier binds a fresh variable: without its serial number."""
    name, serial, _ = variable.decl().name().partition(SERIAL)
    assert serial, f"{variable} is not a fresh variable"
    return name


def _quantified(is_all: bool, variables: list[z3.ArithRef], body: z3.BoolRef) -> z3.BoolRef:
    """The quantifier, with the names of its variables without their serial numbers.

    The body refers to a variable by its place, which was fixed under a name that is used once. So no variable of
    another quantifier is captured, and equal texts at equal depth give equal formulas.
    """
    return building.quantified(is_all, variables, [bound_name(one) for one in variables], body)
