"""Containers of symbolic length, for real code to run on. The item at an index is a term; a write makes a new term.

`Cells` replaces a list and `Ring` a deque, with the operations that the proved code uses. An index out of range raises
IndexError on a path of its own, and the proof shows that no state takes this path. A negative index raises too, since
the proved code does not count from the end. Python's `len` returns plain integers only, so a function runs with another
`len` in its globals (`with_length`); its code object is the same. What Python would answer of a container without
asking it, such as whether it equals a list, is refused.

Before a call, each attribute that the relation does not name has a value of which nothing is known (`forget`). A proof
that ran on a new object would know the first value of every field, and would be about no other. So numbers and truth
values become arbitrary ones, lists get any length and any items, and of everything else nothing is known: it can be
passed on, and nothing more (`concolic.refusal.Opaque`).
"""

import types
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import z3

from kvproof.models.concolic.frame import Container, fields_of
from kvproof.models.concolic.refusal import Hidden, Opaque, refuse
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, number

Read = Callable[[z3.ArithRef], z3.ArithRef]


def symbolic_length(container: Any) -> Any:
    """Replaces `len`; of these containers it returns a symbolic integer."""
    return container.length if isinstance(container, Unbounded) else len(container)


def with_length(function: types.FunctionType) -> types.FunctionType:
    """The same function with `symbolic_length` for `len`."""
    names = {**function.__globals__, "len": symbolic_length}
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def class_with_length(original: type) -> type:
    """A subclass whose methods are those of the class, with `symbolic_length` for `len`."""
    parts: dict[str, Any] = {}
    for name, part in vars(original).items():
        if isinstance(part, types.FunctionType):
            parts[name] = with_length(part)
        elif isinstance(part, property) and isinstance(part.fget, types.FunctionType):
            parts[name] = property(with_length(part.fget))
    return type(original.__name__, (original,), {**parts, "__module__": original.__module__, "proved_class": original})


class Unbounded(Container):
    """A container of integers of any length: its length, and the item at each place."""

    def __init__(self, length: z3.ArithRef, read: Read) -> None:
        self.length = SymbolicInt(length)
        self.read = read

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def content(self) -> tuple[z3.ArithRef, Read]:
        """The content at this moment."""
        return self.length.term, self.read

    def become(self, content: tuple[z3.ArithRef, Read]) -> None:
        """Have this content from now on."""
        self.length, self.read = SymbolicInt(content[0]), content[1]

    def has_content(self, content: tuple[z3.ArithRef, Read]) -> SymbolicBool:
        """Whether the content is as it was at another moment."""
        length, read = content
        if self.read is read and self.length.term.eq(length):
            return SymbolicBool(z3.BoolVal(True))
        place = z3.Int("some_place")
        is_place = z3.And(place >= 0, place < length)
        return SymbolicBool(z3.And(self.length.term == length, z3.Implies(is_place, self.read(place) == read(place))))

    def _refuse(self, *_: Any) -> Any:
        raise refuse("a list of any length is compared, searched or gone over as a whole")

    __eq__ = __ne__ = _refuse
    __hash__ = __iter__ = __contains__ = __reversed__ = _refuse


class Cells(Unbounded):
    """A list of integers of any length."""

    def _index(self, index: Any) -> z3.ArithRef:
        at = number(index)
        if not SymbolicBool(z3.And(at >= 0, at < self.length.term)):
            raise IndexError(f"{at} is no index of the list")
        return at

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._from(index)
        return SymbolicInt(self.read(self._index(index)))

    def _from(self, part: slice) -> "Cells":
        """The rest of the list from an index on. Raises IndexError, and TypeError for other slices."""
        if part.stop is not None or part.step is not None:
            raise TypeError("a list of any length is sliced from a start to its end")
        start, before = number(part.start), self.read
        if not SymbolicBool(z3.And(start >= 0, start <= self.length.term)):
            raise IndexError(f"{start} is no place to start in the list")
        return Cells(self.length.term - start, lambda i: before(i + start))

    def __setitem__(self, index: Any, value: Any) -> None:
        at, before = self._index(index), self.read
        self.read = lambda i: z3.If(i == at, number(value), before(i))

    def append(self, value: Any) -> None:
        """Add an item at the end."""
        end, before = self.length.term, self.read
        self.length = self.length + 1
        self.read = lambda i: z3.If(i == end, number(value), before(i))

    def copy(self) -> "Cells":
        """Another list with the same items."""
        return Cells(self.length.term, self.read)


class Ring(Unbounded):
    """A deque of integers of any length, used at its left end."""

    def popleft(self) -> SymbolicInt:
        """Remove and return the leftmost item. Raises IndexError if there is none."""
        if not self:
            raise IndexError("nothing to take")
        before = self.read
        self.length, self.read = self.length - 1, lambda k: before(k + 1)
        return SymbolicInt(before(z3.IntVal(0)))

    def appendleft(self, value: Any) -> None:
        """Add an item at the left end."""
        before = self.read
        self.length, self.read = self.length + 1, lambda k: z3.If(k == 0, number(value), before(k - 1))


class Interval(Hidden):
    """Consecutive ids; replaces a `range`."""

    def __init__(self, start: z3.ArithRef, stop: z3.ArithRef) -> None:
        self.start, self.stop = start, stop

    def __contains__(self, value: object) -> bool:
        return bool(SymbolicBool(z3.And(number(value) >= self.start, number(value) < self.stop)))

    def _refuse(self, *_: Any) -> Any:
        raise refuse("the ids of a device are compared or gone over as a whole")

    __eq__ = __ne__ = _refuse
    __bool__ = __hash__ = __iter__ = __reversed__ = _refuse


def forget(subject: Any, known: Collection[str]) -> None:
    """Make every attribute unknown, except the known ones. The name of the class is part of the names of terms."""
    for name, value in fields_of(subject).items():
        if name not in known:
            setattr(subject, name, _unknown(f"{type(subject).__name__}_{name}", value))


def _unknown(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return SymbolicBool(z3.Bool(name))
    if isinstance(value, (int, float)):
        return SymbolicInt(z3.Int(name))
    if isinstance(value, (list, deque, bytearray)):
        return (Ring if isinstance(value, deque) else Cells)(*unknown_content(name))
    return Opaque(name.replace("_", ".", 1), may_be_none=value is None)


def unknown_content(name: str) -> tuple[z3.ArithRef, Callable[[z3.ArithRef], z3.ArithRef]]:
    """The length and the items of a container of which nothing is known."""
    items = z3.Function(f"{name}_items", z3.IntSort(), z3.IntSort())
    return z3.Int(f"{name}_length"), lambda place: items(place)
