"""Symbolic integers and truth values: operations on them build terms, and asking for their truth forks the run.

An unmodified method computes with a `SymbolicInt` as with an int. Where it needs a concrete answer (in an `if`, for an
index of a list, or for a key of a dict), the exploration in progress gives one, and later every other possible one.
Claims must not fork: they are written with `both`, `either`, `implies`, `negated` and `chosen`, which work with terms
and with plain Python values, so that the same claims serve for a proof and for its replay with concrete numbers.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import z3

from kvproof.models.concolic.refusal import EndsProof, Hidden, refuse
from kvproof.models.translation import direct
from kvproof.models.translation.direct import arithmetic, conditional, constant, joined, relation


class Decides(Protocol):
    """Gives concrete answers about symbolic values; an exploration does."""

    def decide(self, question: z3.BoolRef) -> bool: ...
    def value_of(self, term: z3.ArithRef) -> int: ...


class Undecided(EndsProof):
    """The truth or number of a symbolic value was needed while no exploration was in progress."""


_DECIDING: list[Decides] = []


def decider() -> Decides:
    """The exploration in progress. Raises Undecided if there is none."""
    if not _DECIDING:
        raise Undecided("a symbolic value was used as a truth or number outside a run; write claims without if/and/or")
    return _DECIDING[-1]


def deciding(by: Decides, run: Callable[[], None]) -> None:
    """Call `run` while `by` answers for every symbolic value."""
    _DECIDING.append(by)
    try:
        run()
    finally:
        _DECIDING.pop()


class SymbolicBool(Hidden):
    """A truth value that may be true or false."""

    __slots__ = ("term",)

    def __init__(self, term: z3.BoolRef) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return decider().decide(self.term)

    def _text(self) -> str:
        return f"<{self.term}>"

    def __eq__(self, other: object) -> "SymbolicBool | bool":  # type: ignore[override]
        return self._as_int() == other

    def __ne__(self, other: object) -> "SymbolicBool | bool":  # type: ignore[override]
        return self._as_int() != other

    def __hash__(self) -> int:
        return hash(bool(self))

    def _as_int(self) -> "SymbolicInt":
        return SymbolicInt(conditional(self.term, constant(1), constant(0)))

    def __add__(self, other: Any) -> "SymbolicInt":
        return SymbolicInt(self._as_int().term + number(other))

    __radd__ = __add__

    def __rsub__(self, other: Any) -> "SymbolicInt":
        return SymbolicInt(number(other) - self._as_int().term)


class SymbolicInt(Hidden):
    """An integer that may have any value, without bound."""

    __slots__ = ("term",)

    def __init__(self, term: z3.ArithRef) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return decider().decide(self.term != 0)

    def __index__(self) -> int:
        return decider().value_of(self.term)

    def __hash__(self) -> int:
        return hash(decider().value_of(self.term))

    def _text(self) -> str:
        return f"<{self.term}>"

    def __add__(self, other: Any) -> "SymbolicInt":
        return SymbolicInt(arithmetic(z3.Z3_mk_add, self.term, number(other)))

    __radd__ = __add__

    def __sub__(self, other: Any) -> "SymbolicInt":
        return SymbolicInt(arithmetic(z3.Z3_mk_sub, self.term, number(other)))

    def __rsub__(self, other: Any) -> "SymbolicInt":
        return SymbolicInt(arithmetic(z3.Z3_mk_sub, number(other), self.term))

    def __mul__(self, other: Any) -> "SymbolicInt":
        return SymbolicInt(self.term * number(other))

    __rmul__ = __mul__

    def __neg__(self) -> "SymbolicInt":
        return SymbolicInt(-self.term)

    def __floordiv__(self, other: Any) -> "SymbolicInt":
        return SymbolicInt(self.term / _divisor(other))

    def __mod__(self, other: Any) -> "SymbolicInt":
        return SymbolicInt(self.term % _divisor(other))

    def __lt__(self, other: Any) -> SymbolicBool:
        return SymbolicBool(relation(z3.Z3_mk_lt, self.term, number(other)))

    def __le__(self, other: Any) -> SymbolicBool:
        return SymbolicBool(relation(z3.Z3_mk_le, self.term, number(other)))

    def __gt__(self, other: Any) -> SymbolicBool:
        return SymbolicBool(relation(z3.Z3_mk_gt, self.term, number(other)))

    def __ge__(self, other: Any) -> SymbolicBool:
        return SymbolicBool(relation(z3.Z3_mk_ge, self.term, number(other)))

    def __eq__(self, other: object) -> SymbolicBool | bool:  # type: ignore[override]
        return SymbolicBool(relation(z3.Z3_mk_eq, self.term, number(other))) if _is_comparable(other) else False

    def __ne__(self, other: object) -> SymbolicBool | bool:  # type: ignore[override]
        return SymbolicBool(self.term != number(other)) if _is_comparable(other) else True


class SymbolicId(SymbolicInt):
    """An id for sets and dicts whose keys are all of this class: all hashes are equal, and `==` decides.

    The container behaves as if all hashes collided; the results of a dict do not depend on collisions.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> SymbolicBool | bool:  # type: ignore[override]
        return True if other is self else super().__eq__(other)


def _divisor(value: Any) -> z3.ArithRef:
    """The term of a divisor. Raises ArithmeticError unless it is positive: Z3 and Python round differently."""
    term = number(value)
    if not decider().decide(term > 0):
        raise ArithmeticError(f"division by {term}, which may be 0 or negative")
    return term


def _is_comparable(value: object) -> bool:
    """Whether a value may equal an integer: a number, symbolic or not, or a truth value, which counts as 0 or 1."""
    if isinstance(value, Hidden) and not isinstance(value, (SymbolicInt, SymbolicBool)):
        raise refuse("an unknown integer is compared with a value that may be anything")
    return isinstance(value, (SymbolicInt, SymbolicBool, int)) or (isinstance(value, float) and value.is_integer())


def number(value: Any) -> z3.ArithRef:
    """The term of an integer, symbolic or not. A number with a fraction is refused: no term stands for it."""
    if isinstance(value, SymbolicInt):
        return value.term
    if isinstance(value, SymbolicBool):
        return value._as_int().term
    if isinstance(value, float) and not value.is_integer():
        raise refuse(f"an unknown integer meets {value}")
    return constant(int(value))


def truth(value: Any) -> z3.BoolRef:
    """The term of a truth value, symbolic or not."""
    return value.term if isinstance(value, SymbolicBool) else z3.BoolVal(bool(value))


# Functions for claims ------------------------------------------------------------------------------------------------


def both(parts: Iterable[Any]) -> Any:
    """Whether every part is true. Parts after one that is the constant False are not evaluated."""
    return _joined(parts, False, z3.Z3_mk_and)


def either(parts: Iterable[Any]) -> Any:
    """Whether some part is true. Parts after one that is the constant True are not evaluated."""
    return _joined(parts, True, z3.Z3_mk_or)


def negated(condition: Any) -> Any:
    return SymbolicBool(direct.negated(condition.term)) if isinstance(condition, SymbolicBool) else not condition


def implies(condition: Any, conclusion: Any) -> Any:
    """Whether the conclusion is true or the condition is not."""
    return either((negated(condition), conclusion))


def same_truth(one: Any, other: Any) -> Any:
    """Whether both are true or neither is."""
    if not isinstance(one, SymbolicBool):
        one, other = other, one
    if not isinstance(one, SymbolicBool):
        return bool(one) == bool(other)
    if not isinstance(other, SymbolicBool):
        return one if other else negated(one)
    return SymbolicBool(relation(z3.Z3_mk_eq, one.term, other.term))


def chosen(condition: Any, one: Any, other: Any) -> Any:
    """`one` if the condition is true, else `other`; both are integers."""
    if isinstance(condition, SymbolicBool):
        return SymbolicInt(conditional(condition.term, number(one), number(other)))
    return one if condition else other


def equal(one: Any, other: Any) -> Any:
    """Whether two integers, or two lists or tuples of them, are equal, item by item."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return both([len(one) == len(other), *(equal(a, b) for a, b in zip(one, other, strict=False))])
    return True if one is other else one == other


def count_of(value: Any, items: Iterable[Any]) -> Any:
    total: Any = 0
    for item in items:
        total = total + chosen(equal(item, value), 1, 0)
    return total


def at(items: Any, index: Any) -> Any:
    """The item of a list at an index, which may be symbolic and must be in range."""
    found = items[-1]
    for place, item in enumerate(items[:-1]):
        found = chosen(index == place, item, found)
    return found


def _joined(parts: Iterable[Any], decisive: bool, connective: Callable[..., Any]) -> Any:
    symbolic = []
    for part in parts:
        if isinstance(part, SymbolicBool):
            symbolic.append(part)
        elif bool(part) == decisive:
            return decisive
    if not symbolic:
        return not decisive
    if len(symbolic) == 1:
        return symbolic[0]
    return SymbolicBool(joined(connective, [part.term for part in symbolic]))
