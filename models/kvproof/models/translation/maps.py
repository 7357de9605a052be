"""The maps of a state, as functions from index terms to terms.

A map is a closure: a write makes a new map, which asks at each read whether the index is the one written. So a value of
the state after a rule is a term over the state before, simplified while it is made, and Z3 sees no arrays, stores or
lambdas, only functions of the state before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import z3

from kvproof.models.translation.terms import Term, Truth, choice, conjunction, equal
from kvproof.spec.language import Domain

Read = Callable[..., Term]


class Map:
    """A function from indexes, one for each domain, to a term. It caches its values."""

    def __init__(self, domains: tuple[Domain, ...], read: Read) -> None:
        self.domains = domains
        self._read = read
        self._remembered: dict[tuple[Any, ...], tuple[tuple[Term, ...], Term]] = {}

    @property
    def arity(self) -> int:
        """The number of its indexes."""
        return len(self.domains)

    def read(self, *indexes: Term) -> Term:
        """The value at these indexes."""
        key = tuple([index if isinstance(index, int) else (index.get_id(),) for index in indexes])
        found = self._remembered.get(key)
        if found is None:  # the indexes are kept, so that their ids stay theirs
            found = self._remembered[key] = (indexes, self._read(*indexes))
        return found[1]

    def at(self, index: Term) -> Value:
        """The value at this index; if the map has more indexes, the map of the remaining ones."""
        if self.arity == 1:
            return self.read(index)
        return Map(self.domains[1:], lambda *rest: self.read(index, *rest))

    def put(self, path: tuple[Term, ...], value: Value) -> Map:
        """The map with another value, or another map, at `path`."""
        depth = len(path)

        def read(*indexes: Term) -> Term:
            is_there = conjunction(*[equal(index, written) for index, written in zip(indexes, path, strict=False)])
            if is_there is False:
                return self.read(*indexes)
            there = value.read(*indexes[depth:]) if isinstance(value, Map) else value
            return there if is_there is True else choice(is_there, there, self.read(*indexes))

        return Map(self.domains, read)


Value = Term | Map


def is_value(found: Any) -> TypeGuard[Value]:
    """Whether it is a value: a number, a truth value or a map; no state and no record."""
    return isinstance(found, (int, z3.ExprRef, Map))


def shape(value: Value) -> tuple[Domain, ...]:
    """The domains of a map; none for a term. Values of one shape may stand for each other."""
    return value.domains if isinstance(value, Map) else ()


def chosen(condition: Truth, one: Value, other: Value) -> Value:
    """`one if condition else other`, for terms and for maps of one shape."""
    if isinstance(condition, bool):
        return one if condition else other
    if one is other:
        return one
    if isinstance(one, Map) and isinstance(other, Map):
        first, second = one, other
        return Map(one.domains, lambda *indexes: choice(condition, first.read(*indexes), second.read(*indexes)))
    assert not isinstance(one, Map)
    assert not isinstance(other, Map)
    return choice(condition, one, other)


@dataclass(frozen=True, eq=False)
class SymbolicState:
    """One map for each field of the state; a write makes another state."""

    maps: Mapping[str, Map]

    def written(self, field: str, map: Map) -> SymbolicState:
        """The state with another map for one field."""
        return SymbolicState({**self.maps, field: map})


def merged(condition: Truth, yes: SymbolicState, no: SymbolicState) -> SymbolicState:
    """The state `yes` if the condition holds, else `no`. A map that both share is kept."""
    maps: dict[str, Map] = {}
    for name, map in yes.maps.items():
        found = chosen(condition, map, no.maps[name])
        assert isinstance(found, Map)
        maps[name] = found
    return SymbolicState(maps)
