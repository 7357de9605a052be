"""Integers and truth values of Z3, each made with one call.

The operators of Z3's Python library look for the sorts of both terms and for the class of the result, with up to ten
calls of Z3 for one term. Here every term is an integer or a truth value, of one context, so one call makes the term
that the operator makes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import z3

MIRRORED = {  # the comparison with its sides exchanged
    z3.Z3_mk_eq: z3.Z3_mk_eq,
    z3.Z3_mk_lt: z3.Z3_mk_gt,
    z3.Z3_mk_le: z3.Z3_mk_ge,
    z3.Z3_mk_gt: z3.Z3_mk_lt,
    z3.Z3_mk_ge: z3.Z3_mk_le,
}


@functools.lru_cache(maxsize=1024)
def constant(value: int) -> z3.IntNumRef:
    """A known number as a term."""
    return z3.IntVal(value)


def relation(make: Callable[..., Any], one: z3.ExprRef, other: z3.ExprRef) -> z3.BoolRef:
    """A comparison of two terms of one sort. Python asks a known number first: `x < 1` is made as `1 > x`."""
    if isinstance(other, z3.IntNumRef) and not isinstance(one, z3.IntNumRef):
        make, one, other = MIRRORED[make], other, one
    return _related(make, one, other)


def relation_of(make: Callable[..., Any], one: z3.ArithRef | int, other: z3.ArithRef | int) -> z3.BoolRef:
    """A comparison of two numbers, not both of Python. Python asks the unknown one: `1 < x` is made as `x > 1`."""
    if not isinstance(one, z3.ArithRef):
        assert isinstance(other, z3.ArithRef)
        return _related(MIRRORED[make], other, constant(one))
    return relation(make, one, other) if isinstance(other, z3.ArithRef) else _related(make, one, constant(other))


def _related(make: Callable[..., Any], one: z3.ExprRef, other: z3.ExprRef) -> z3.BoolRef:
    return z3.BoolRef(make(one.ctx_ref(), one.ast, other.ast), one.ctx)


def arithmetic(make: Callable[..., Any], one: z3.ArithRef, other: z3.ArithRef) -> z3.ArithRef:
    """A sum, difference or product of two numbers."""
    return z3.ArithRef(make(one.ctx_ref(), 2, array((one, other))), one.ctx)


def joined(connective: Callable[..., Any], terms: Sequence[z3.BoolRef]) -> z3.BoolRef:
    """The conjunction or disjunction of at least one truth value."""
    first = terms[0]
    return z3.BoolRef(connective(first.ctx_ref(), len(terms), array(terms)), first.ctx)


def negated(term: z3.BoolRef) -> z3.BoolRef:
    """`not term`."""
    return z3.BoolRef(z3.Z3_mk_not(term.ctx_ref(), term.ast), term.ctx)


def conditional(condition: z3.BoolRef, one: z3.ExprRef, other: z3.ExprRef) -> Any:
    """`one if condition else other`, for two numbers or two truth values."""
    made = z3.Z3_mk_ite(condition.ctx_ref(), condition.ast, one.ast, other.ast)
    return (z3.BoolRef if isinstance(one, z3.BoolRef) else z3.ArithRef)(made, condition.ctx)


def array(terms: Sequence[z3.ExprRef]) -> Any:
    """The terms as an array of C."""
    return (z3.Ast * len(terms))(*[term.ast for term in terms])
