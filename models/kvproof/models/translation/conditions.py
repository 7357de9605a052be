"""The conditions under which the translator reads a piece of text, and the demands that the text makes there.

A subscript must be in range and a divisor positive where it is reached: after the guards so far, on the taken side of
each branch, for the values over which a comprehension or quantifier runs.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import z3

from kvproof.models.translation.terms import SERIAL, Truth, bound_name, conjunction, for_all, implication

_SERIALS = itertools.count()
_BOUND: list[str] = []  # the names that are bound around the place that is read now, in all runs of the process


@dataclass(frozen=True, eq=False)
class Demand:
    """What must hold for a value to be defined.

    text: the subscript, division or call. chain: the functions it was reached through, outermost first. place: file
    and line.
    """

    text: str
    chain: tuple[str, ...]
    place: str
    formula: Truth


class Conditions:
    """The guards, branches and bound variables around the piece of text that is read, and the demands so far.

    is_silent: demands are not collected.
    """

    def __init__(self, is_silent: bool = False) -> None:
        self.guard: Truth = True
        self.demands: list[Demand] = []
        self._path: list[Truth] = []
        self._bound: list[tuple[z3.ArithRef, Truth]] = []
        self.is_silent = is_silent

    def under_path(self, formula: Truth) -> Truth:
        """The formula, provided that the branches taken lead here."""
        return implication(conjunction(*self._path), formula)

    def is_reached(self) -> Truth:
        """The condition that a run reaches this piece of text."""
        return conjunction(self.guard, *self._path)

    def demand(self, formula: Truth, text: str, chain: tuple[str, ...], place: str) -> None:
        """Add the demand that the formula holds here."""
        if self.is_silent:
            return
        wanted = implication(self.is_reached(), formula)
        for variable, known in reversed(self._bound):
            if wanted is not True:
                wanted = for_all([variable], known, wanted)
        if wanted is not True:
            self.demands.append(Demand(text, chain, place, wanted))

    @contextmanager
    def under(self, *conditions: Truth) -> Iterator[None]:
        """Read the side of a branch on which the conditions hold."""
        depth = len(self._path)
        self._path.extend(conditions)
        try:
            yield
        finally:
            del self._path[depth:]

    @contextmanager
    def binding(self, variables: Sequence[tuple[z3.ArithRef, Truth]]) -> Iterator[None]:
        """Read the body of a quantifier or comprehension. variables: each with what is known about its values."""
        depth, depth_of_all = len(self._bound), len(_BOUND)
        self._bound.extend(variables)
        for variable, _ in variables:
            assert bound_name(variable) not in _BOUND, f"{variable} is bound within a quantifier over the same name"
            _BOUND.append(bound_name(variable))
        try:
            yield
        finally:
            del self._bound[depth:], _BOUND[depth_of_all:]

    @contextmanager
    def silently(self) -> Iterator[None]:
        """Read a text again without its demands, which were added before."""
        before, self.is_silent = self.is_silent, True
        try:
            yield
        finally:
            self.is_silent = before

    def fresh(self, name: str, further: int = 0) -> z3.ArithRef:
        """A variable that was never used before. A quantifier binds it under a name that contains its depth.

        The depth counts the variables that are bound around the place where the text is read now. A comprehension may
        be read later, in another run and within other quantifiers, so the depth counts those of all runs.
        """
        return z3.Int(f"{name}!{len(_BOUND) + further}{SERIAL}{next(_SERIALS)}")
