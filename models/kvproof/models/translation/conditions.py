"""What holds where the translator stands in a text, and what must hold there.

A subscript must be in range and a divisor positive, not always but where it is reached: after the guards so far, on
the taken side of each branch, for the values over which a comprehension or quantifier runs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import z3

from kvproof.models.translation.terms import Truth, conjunction, for_all, implication


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
    """Guards passed, branches taken and variables bound, as the translator goes along."""

    def __init__(self) -> None:
        self.guard: Truth = True
        self.demands: list[Demand] = []
        self._path: list[Truth] = []
        self._bound: list[tuple[z3.ArithRef, Truth]] = []
        self._is_silent = False

    def under_path(self, formula: Truth) -> Truth:
        """The formula, where the branches taken lead here."""
        return implication(conjunction(*self._path), formula)

    def is_reached(self) -> Truth:
        """Whether a run comes here."""
        return conjunction(self.guard, *self._path)

    def demand(self, formula: Truth, text: str, chain: tuple[str, ...], place: str) -> None:
        """Note that the formula must hold here."""
        if self._is_silent:
            return
        wanted = implication(self.is_reached(), formula)
        for variable, known in reversed(self._bound):
            if wanted is not True:
                wanted = for_all([variable], known, wanted)
        if wanted is not True:
            self.demands.append(Demand(text, chain, place, wanted))

    @contextmanager
    def under(self, *conditions: Truth) -> Iterator[None]:
        """On the side of a branch where the conditions hold."""
        depth = len(self._path)
        self._path.extend(conditions)
        try:
            yield
        finally:
            del self._path[depth:]

    @contextmanager
    def binding(self, variables: Sequence[tuple[z3.ArithRef, Truth]]) -> Iterator[None]:
        """Where variables run over all values of which something is known."""
        depth = len(self._bound)
        self._bound.extend(variables)
        try:
            yield
        finally:
            del self._bound[depth:]

    @contextmanager
    def silently(self) -> Iterator[None]:
        """Where a text is read again whose demands are noted already."""
        before, self._is_silent = self._is_silent, True
        try:
            yield
        finally:
            self._is_silent = before

    def fresh(self, name: str, further: int = 0) -> z3.ArithRef:
        """A variable that no other has that is bound here; the same in the same place, so equal texts stay equal."""
        return z3.Int(f"{name}!{len(self._bound) + further}")
