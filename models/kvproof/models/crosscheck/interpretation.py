"""What the symbols of a term mean: the sizes, the fields of native states and the arguments of a rule or operation.

The prover's tables and enumerations have no end, the lists of a native state have one. The state means the same with
longer lists: no rule has written there, so a value past the end of such a list is the first value of its field. Any
other read outside a domain raises `OutOfDomain`: the text promises that no value depends on it.

A quantifier over a domain without end is expanded over the numbers up to some bound, and then evaluated once for all
numbers from the bound on, which a `Tail` stands for. Every comparison with it must have the same result for all of
these numbers. If one does not, the bound was too small, and is raised. So no bound is ever assumed to suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvproof.models.translation.maps import Map
from kvproof.models.translation.sizes import WITHOUT_END
from kvproof.models.translation.translator import Parameter
from kvproof.spec.language import Domain
from kvproof.spec.native import MachineOf

GIVEN = "given_"  # how the translator prefixes the name of an argument


class OutOfDomain(Exception):
    """A term reads a function outside its domain, or divides by a number that is not positive."""


class Undecided(Exception):
    """A comparison with the tail of a domain is not the same for all numbers of the tail."""


class Tail:
    """All numbers `least + n` of an endless domain, n >= 0, or a linear expression over such numbers.

    slopes: the factor of each n; an n is identified by an object.
    """

    __slots__ = ("least", "slopes")

    def __init__(self, least: int, slopes: Mapping[object, int] | None = None) -> None:
        self.least = least
        self.slopes = {object(): 1} if slopes is None else slopes

    def __add__(self, other: Number) -> Number:
        if isinstance(other, int):
            return Tail(self.least + other, self.slopes)
        slopes = dict(self.slopes)
        for n, slope in other.slopes.items():
            slopes[n] = slopes.get(n, 0) + slope
        left = {n: slope for n, slope in slopes.items() if slope}
        return Tail(self.least + other.least, left) if left else self.least + other.least

    def __mul__(self, factor: Number) -> Number:
        if not isinstance(factor, int):
            raise Undecided
        return Tail(self.least * factor, {n: slope * factor for n, slope in self.slopes.items()}) if factor else 0

    def __neg__(self) -> Number:
        return self * -1

    def __sub__(self, other: Number) -> Number:
        return self + -other

    def __rsub__(self, other: int) -> Number:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, divisor: Number) -> Number:
        if not isinstance(divisor, int) or any(slope % divisor for slope in self.slopes.values()):
            raise Undecided
        return Tail(self.least // divisor, {n: slope // divisor for n, slope in self.slopes.items()})

    def __mod__(self, divisor: Number) -> Number:
        return self - self // divisor * divisor

    def __rfloordiv__(self, other: int) -> Number:
        raise Undecided

    __rmod__ = __rfloordiv__

    def __ge__(self, other: Number) -> bool:
        difference = self - other
        if isinstance(difference, int):
            return difference >= 0
        if difference.least >= 0 and min(difference.slopes.values()) > 0:
            return True
        if difference.least < 0 and max(difference.slopes.values()) < 0:
            return False
        raise Undecided

    def __le__(self, other: Number) -> bool:
        return -self >= -other

    def __lt__(self, other: Number) -> bool:
        return not self >= other

    def __gt__(self, other: Number) -> bool:
        return not self <= other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, Tail)):
            return NotImplemented
        difference = self - other
        if isinstance(difference, int):
            return difference == 0
        if difference >= 1 or difference <= -1:
            return False
        raise Undecided

    def __hash__(self) -> int:
        return hash(Tail)


Number = int | Tail


def quotient(one: Number, divisor: Number) -> Number:
    """`one div divisor` of Z3. Raises OutOfDomain if the divisor is not positive."""
    if divisor <= 0:
        raise OutOfDomain(f"{one} is divided by {divisor}")
    return one // divisor


def remainder(one: Number, divisor: Number) -> Number:
    """`one mod divisor` of Z3. Raises OutOfDomain if the divisor is not positive."""
    if divisor <= 0:
        raise OutOfDomain(f"{one} is divided by {divisor}")
    return one % divisor


class Rows(dict[Any, Any]):
    """The meaning of a function: its value at each index, or at each tuple of indexes.

    lengths: how many indexes there are in each place. has_end: whether the domain of each place ends there. beyond: the
    value past the end of an endless domain.
    """

    def __init__(
        self, name: str, rows: Any, lengths: Sequence[int], has_end: Sequence[bool], beyond: Callable[..., Any]
    ) -> None:
        match len(lengths):
            case 1:
                super().__init__(enumerate(rows))
            case 2:
                super().__init__(((i, j), value) for i, row in enumerate(rows) for j, value in enumerate(row))
            case _:
                super().__init__(_flat(rows, len(lengths)))
        self.name, self.depth, self.lengths, self.has_end, self.beyond = name, len(lengths), lengths, has_end, beyond

    def __missing__(self, key: Any) -> Any:
        indexes = key if isinstance(key, tuple) else (key,)
        for index, length, has_end in zip(indexes, self.lengths, self.has_end, strict=True):
            if index < 0 or (has_end and index >= length):
                raise OutOfDomain(f"{self.name} is read at {', '.join(map(str, indexes))}")
        if not any(index >= length for index, length in zip(indexes, self.lengths, strict=True)):
            raise Undecided
        return self.beyond(*indexes)

    def cells(self) -> Iterable[tuple[tuple[int, ...], Any]]:
        """Each value with its indexes."""
        return self.items() if self.depth > 1 else (((at,), value) for at, value in self.items())


def _flat(rows: Any, depth: int) -> list[tuple[tuple[int, ...], Any]]:
    if depth == 0:
        return [((), rows)]
    return [((index, *at), value) for index, row in enumerate(rows) for at, value in _flat(row, depth - 1)]


@dataclass(frozen=True, eq=False)
class Interpretation:
    """The meaning of every symbol by its name: numbers, truth values, and functions as `Rows`.

    end: the number at which the tail of an endless domain is tried first.
    """

    symbols: Mapping[str, Any]
    end: int

    def extended(self, symbols: Mapping[str, Any]) -> Interpretation:
        """The interpretation with further symbols."""
        return Interpretation({**self.symbols, **symbols}, self.end)


def interpretation(machine: MachineOf[Any], **states: Any) -> Interpretation:
    """The meaning of the sizes, and of the fields of native states with their ghosts.

    states: by the prefix of the symbolic state; `state` for the one without a prefix.
    """
    symbols: dict[str, Any] = {name: value for name, value in machine.sizes.names().items() if isinstance(value, int)}
    for prefix, state in states.items():
        for name in machine.system.fields:
            symbols[name if prefix == "state" else f"{prefix}_{name}"] = field_rows(machine, name, getattr(state, name))
    return Interpretation(symbols, machine.sizes.longest)


def given(machine: MachineOf[Any], parameters: Iterable[Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """The symbols of arguments, whose native values are given by name: numbers, truth values or lists.

    A list is 0 past its end if its domain has no end.
    """
    return {GIVEN + one.name: _argument(machine, one, values[one.name]) for one in parameters}


def field_rows(machine: MachineOf[Any], name: str, rows: Any) -> Rows:
    """The value of a field at each index, given its native value, a list."""
    field = machine.system.fields[name]
    start = field.start
    if not callable(start):
        return Rows(name, rows, *shape(machine, field.domains), lambda *_: start)
    first: Callable[..., Any] = machine.names[start.__name__]
    return Rows(name, rows, *shape(machine, field.domains), lambda *at: first(*field.start_arguments(at)))


def _argument(machine: MachineOf[Any], parameter: Parameter, value: Any) -> Any:
    if not isinstance(parameter.value, Map):
        return value
    lengths, has_end = shape(machine, parameter.value.domains)
    inner = value
    for place in range(len(lengths)):
        lengths[place], inner = len(inner), inner[0] if inner else []
    return Rows(parameter.name, value, lengths, has_end, lambda *_: 0)


def shape(machine: MachineOf[Any], domains: Sequence[Domain]) -> tuple[list[int], list[bool]]:
    """The number of indexes in each place, and whether the domain ends there."""
    sizes = [machine.names[one.size] if isinstance(one.size, str) else one.size or 0 for one in domains]
    return sizes, [one.size is not None and one.size not in WITHOUT_END for one in domains]
