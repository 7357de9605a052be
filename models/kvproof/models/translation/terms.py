"""Terms: integers and truth values, known (Python's own) or unknown (Z3's).

Known values stay Python values as long as possible. So the same translation gives formulas on unknown states, and plain
values, without any call of Z3, on concrete states.

Division and remainder agree with Python for a positive divisor. Z3 rounds differently if the divisor is negative, so
each division demands a positive divisor (`Conditions.demand`).
"""

from collections.abc import Callable, Iterable

import z3
import z3.z3

from kvproof.models.translation.direct import conditional, constant, joined, negated, relation, relation_of

z3.z3.Z3_DEBUG = False  # Z3 checks the sorts of each term; checks of its Python library before that take a fifth more

SERIAL = "#"  # between the name of a variable and its serial number, until a quantifier binds it

Truth = z3.BoolRef | bool
Number = z3.ArithRef | int
Term = z3.BoolRef | z3.ArithRef | int  # Python's truth values are integers


def is_unknown(term: object) -> bool:
    return isinstance(term, z3.ExprRef)


def is_truth(term: object) -> bool:
    return isinstance(term, (bool, z3.BoolRef))


def conjunction(*parts: Truth) -> Truth:
    unknown: list[z3.BoolRef] = []
    for part in parts:
        if isinstance(part, z3.BoolRef):
            unknown.append(part)
        elif not part:
            return False
    return every(unknown) if unknown else True


def disjunction(*parts: Truth) -> Truth:
    unknown: list[z3.BoolRef] = []
    for part in parts:
        if isinstance(part, z3.BoolRef):
            unknown.append(part)
        elif part:
            return True
    return some(unknown) if unknown else False


def every(formulas: Iterable[z3.BoolRef]) -> z3.BoolRef:
    """The conjunction of the formulas; also of none or one, for which SMT-LIB has no `and`."""
    parts = list(formulas)
    return z3.BoolVal(True) if not parts else parts[0] if len(parts) == 1 else joined(z3.Z3_mk_and, parts)


def some(formulas: Iterable[z3.BoolRef]) -> z3.BoolRef:
    """The disjunction of the formulas; also of none or one."""
    parts = list(formulas)
    return z3.BoolVal(False) if not parts else parts[0] if len(parts) == 1 else joined(z3.Z3_mk_or, parts)


def negation(part: Truth) -> Truth:
    return not part if isinstance(part, bool) else negated(part)


def implication(condition: Truth, conclusion: Truth) -> Truth:
    return disjunction(negation(condition), conclusion)


def number(term: Term) -> Number:
    """The term as a number: as in Python, a true value is 1."""
    if isinstance(term, z3.BoolRef):
        chosen: z3.ArithRef = conditional(term, constant(1), constant(0))
        return chosen
    return int(term) if isinstance(term, bool) else term


def choice(condition: Truth, one: Term, other: Term) -> Term:
    """`one if condition else other`."""
    if isinstance(condition, bool):
        return one if condition else other
    if is_truth(one) != is_truth(other):
        one, other = number(one), number(other)
    if are_same(one, other):
        return one
    chosen: Term = conditional(condition, _unknown(one), _unknown(other))
    return chosen


def _unknown(term: Term) -> z3.ExprRef:
    """The term as one of Z3."""
    if isinstance(term, z3.ExprRef):
        return term
    return z3.BoolVal(term) if isinstance(term, bool) else constant(term)


def are_same(one: Term, other: Term) -> bool:
    """Whether two terms are syntactically the same."""
    if isinstance(one, z3.ExprRef):
        return isinstance(other, z3.ExprRef) and one.eq(other)
    return not isinstance(other, z3.ExprRef) and one == other


def equal(one: Term, other: Term) -> Truth:
    """`one == other`."""
    if is_truth(one) != is_truth(other):
        one, other = number(one), number(other)
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    if is_truth(one):
        unknown, known = (other, one) if isinstance(one, bool) else (one, other)
        return relation(z3.Z3_mk_eq, _unknown(unknown), _unknown(known))
    return relation_of(z3.Z3_mk_eq, one, other)  # type: ignore[arg-type]  # both are numbers


COMPARISONS: dict[str, Callable[[Number, Number], Truth]] = {  # also of the few numbers that are no integers
    "Lt": lambda one, other: one < other,
    "LtE": lambda one, other: one <= other,
    "Gt": lambda one, other: one > other,
    "GtE": lambda one, other: one >= other,
}


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
        found = number(choice(term < found, term, found))
    return found


def greatest(*terms: Number) -> Number:
    """`max(…)`."""
    found = terms[0]
    for term in terms[1:]:
        found = number(choice(term > found, term, found))
    return found


def is_between(low: Number, term: Number, end: Number | None) -> Truth:
    """`low <= term < end`; without end if None."""
    if isinstance(term, int):
        return conjunction(low <= term, True if end is None else term < end)
    is_above = relation_of(z3.Z3_mk_le, low, term)
    return is_above if end is None else joined(z3.Z3_mk_and, (is_above, relation_of(z3.Z3_mk_lt, term, end)))


def for_all(variables: list[z3.ArithRef], known: Truth, body: Truth) -> Truth:
    """`body` for all values of the variables of which `known` holds."""
    if isinstance(body, bool) and body:
        return True
    return _renamed(z3.ForAll(variables, z3.Implies(known, body)))


def for_some(variables: list[z3.ArithRef], known: Truth, body: Truth) -> Truth:
    """`body` for some values of the variables of which `known` holds."""
    if isinstance(body, bool) and not body:
        return False
    return _renamed(z3.Exists(variables, z3.And(known, body)))


def bound_name(variable: z3.ArithRef) -> str:
    """The name under which a quantifier binds a fresh variable: without its serial number."""
    name, serial, _ = str(variable).partition(SERIAL)
    assert serial, f"{variable} is not a fresh variable"
    return name


def _renamed(formula: z3.QuantifierRef) -> z3.BoolRef:
    """The quantifier with the names of its variables, without their serial numbers.

    The body refers to a variable by its place, which was fixed under a name that is used once. So no variable of
    another quantifier is captured, and equal texts at equal depth give equal formulas.
    """
    num, context = formula.num_vars(), formula.ctx_ref()
    names = [formula.var_name(place).partition(SERIAL)[0] for place in range(num)]
    sorts = (z3.Sort * num)(*(formula.var_sort(place).ast for place in range(num)))
    symbols = (z3.Symbol * num)(*(z3.Z3_mk_string_symbol(context, name) for name in names))
    weight, body = formula.weight(), formula.body().as_ast()
    made = z3.Z3_mk_quantifier(context, formula.is_forall(), weight, 0, None, num, sorts, symbols, body)
    return z3.QuantifierRef(made, formula.ctx)
