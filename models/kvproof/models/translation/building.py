"""Build terms through the C interface of Z3.

The operators of Z3's Python library call Z3 up to ten times for one term: they look for the sorts of the arguments and
for the class of the result. All terms of proofs are integers or truth values, so here both are known, and one call
makes a term. The terms are the same as those of the operators.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import z3


def conjoined(parts: Sequence[z3.BoolRef]) -> z3.BoolRef:
    """The conjunction of one truth value or more."""
    return z3.BoolRef(z3.Z3_mk_and(parts[0].ctx_ref(), len(parts), _array(parts)), parts[0].ctx)


def disjoined(parts: Sequence[z3.BoolRef]) -> z3.BoolRef:
    """The disjunction of one truth value or more."""
    return z3.BoolRef(z3.Z3_mk_or(parts[0].ctx_ref(), len(parts), _array(parts)), parts[0].ctx)


def negated(part: z3.BoolRef) -> z3.BoolRef:
    return z3.BoolRef(z3.Z3_mk_not(part.ctx_ref(), part.ast), part.ctx)


def implied(condition: z3.BoolRef, conclusion: z3.BoolRef) -> z3.BoolRef:
    return z3.BoolRef(z3.Z3_mk_implies(condition.ctx_ref(), condition.ast, conclusion.ast), condition.ctx)


def equated(one: z3.ExprRef, other: z3.ExprRef) -> z3.BoolRef:
    """`one == other`, for two integers or two truth values."""
    return z3.BoolRef(z3.Z3_mk_eq(one.ctx_ref(), one.ast, other.ast), one.ctx)


def compared(sign: str, one: z3.ArithRef, other: z3.ArithRef) -> z3.BoolRef:
    """The comparison of two numbers; `sign` is one of `COMPARISONS`. A known number on the right goes to the left."""
    if isinstance(other, z3.IntNumRef) and not isinstance(one, z3.IntNumRef):
        sign, one, other = MIRRORED[sign], other, one
    return made(sign, one, other)


def made(sign: str, one: z3.ArithRef, other: z3.ArithRef) -> z3.BoolRef:
    """The comparison of two numbers, in this order."""
    return z3.BoolRef(COMPARISONS[sign](one.ctx_ref(), one.ast, other.ast), one.ctx)


COMPARISONS = {"<": z3.Z3_mk_lt, "<=": z3.Z3_mk_le, ">": z3.Z3_mk_gt, ">=": z3.Z3_mk_ge, "==": z3.Z3_mk_eq}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


def total(one: z3.ArithRef, other: z3.ArithRef) -> z3.ArithRef:
    return z3.ArithRef(z3.Z3_mk_add(one.ctx_ref(), 2, _array((one, other))), one.ctx)


def difference(one: z3.ArithRef, other: z3.ArithRef) -> z3.ArithRef:
    return z3.ArithRef(z3.Z3_mk_sub(one.ctx_ref(), 2, _array((one, other))), one.ctx)


def chosen_truth(condition: z3.BoolRef, one: z3.BoolRef, other: z3.BoolRef) -> z3.BoolRef:
    """`one` if the condition holds, else `other`; the same for numbers is `chosen_number`."""
    return z3.BoolRef(z3.Z3_mk_ite(condition.ctx_ref(), condition.ast, one.ast, other.ast), condition.ctx)


def chosen_number(condition: z3.BoolRef, one: z3.ArithRef, other: z3.ArithRef) -> z3.ArithRef:
    return z3.ArithRef(z3.Z3_mk_ite(condition.ctx_ref(), condition.ast, one.ast, other.ast), condition.ctx)


def quantified(is_all: bool, variables: Sequence[z3.ArithRef], names: Sequence[str], body: z3.BoolRef) -> z3.BoolRef:
    """`body` for all values of the variables, or for some; the variables get other names."""
    context, count = body.ctx_ref(), len(variables)
    bound = z3.QuantifierRef(
        z3.Z3_mk_quantifier_const(context, is_all, 1, count, _array(variables), 0, None, body.ast), body.ctx
    )
    sorts = (z3.Sort * count)(*[z3.IntSort(body.ctx).ast] * count)
    symbols = (z3.Symbol * count)(*[z3.Z3_mk_string_symbol(context, name) for name in names])
    inside = z3.Z3_get_quantifier_body(context, bound.ast)
    return z3.QuantifierRef(z3.Z3_mk_quantifier(context, is_all, 1, 0, None, count, sorts, symbols, inside), body.ctx)


def application(function: z3.FuncDeclRef) -> Callable[..., Any]:
    """A Python function that applies a function of integers to terms; its values are terms."""
    kind = z3.BoolRef if function.range() == z3.BoolSort() else z3.ArithRef

    def apply(*arguments: z3.ArithRef | int) -> Any:
        terms = [integer(one) if isinstance(one, int) else one for one in arguments]
        return kind(z3.Z3_mk_app(function.ctx_ref(), function.ast, len(terms), _array(terms)), function.ctx)

    return apply


def known(value: int, partner: z3.ArithRef) -> z3.ArithRef:
    """The term of a known number that is used with another term: an integer, or a real number if that is one."""
    is_integer = z3.Z3_get_sort(partner.ctx_ref(), partner.ast).value == _integers().ast.value
    return integer(value) if is_integer else z3.RealVal(value)


@functools.cache
def _integers() -> z3.SortRef:
    return z3.IntSort()


@functools.lru_cache(maxsize=1024)
def integer(value: int) -> z3.IntNumRef:
    """The term of a known integer, in the main context."""
    return z3.IntVal(int(value))


def are_identical(one: z3.AstRef, other: z3.AstRef) -> bool:
    """Whether two terms of one context are the same term, as `one.eq(other)` says."""
    return bool(one.ast.value == other.ast.value)


def _array(terms: Sequence[z3.AstRef]) -> Any:
    return (z3.Ast * len(terms))(*[one.ast for one in terms])
