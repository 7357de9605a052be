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

import sys
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.models.concolic.frame import Container, fields_of
from kvproof.models.concolic.refusal import Hidden, Opaque, refuse
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, number
from kvproof.models.refinement.comprehensions import NEW_LIST, code_of

Read = Callable[[z3.ArithRef], z3.ArithRef]


def symbolic_length(container: Any) -> Any:
    """Replaces `len`; of these containers it returns a symbolic integer."""
    return container.length if isinstance(container, Unbounded) else len(container)


def symbolic_range(*arguments: Any) -> Any:
    """Replaces `range`, of plain or symbolic numbers."""
    if all(isinstance(one, int) for one in arguments) or len(arguments) > 2:
        return range(*arguments)
    first, *others = (number(one) for one in arguments)
    return Numbers(first, *others) if others else Numbers(z3.IntVal(0), first)


def symbolic_zip(*lists: Any, strict: bool = False) -> Any:
    """Replaces `zip`; of two lists of any length it returns pairs, as many as the shorter one has."""
    if not any(isinstance(one, Unbounded) for one in lists):
        return zip(*lists, strict=strict)
    if strict:
        raise refuse("lists of any length must be equally long to be gone over together")
    return Pairs(*lists)


def symbolic_list(*items: Any) -> Any:
    """Replaces `list`; of a list or deque of any length it returns another list with the same items."""
    return Cells(*items[0].content()) if items and isinstance(items[0], Unbounded) else list(*items)


def new_list() -> "Cells":
    """The list of a comprehension at its beginning."""
    return Cells(z3.IntVal(0), lambda _: z3.IntVal(0))


REPLACED: dict[str, Callable[..., Any]] = {
    "len": symbolic_length,
    "range": symbolic_range,
    "zip": symbolic_zip,
    "list": symbolic_list,
    NEW_LIST: new_list,
}


def with_length(function: types.FunctionType) -> types.FunctionType:
    """The same function with other builtins, and with loops for list comprehensions."""
    names, code = {**function.__globals__, **REPLACED}, code_of(function)
    made = types.FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def class_with_length(original: type) -> type:
    """A subclass whose methods are those of the class, with `symbolic_length` for `len`."""
    parts: dict[str, Any] = {}
    for name, part in vars(original).items():
        if isinstance(part, types.FunctionType) and name != "__init__":
            parts[name] = with_length(part)
        elif isinstance(part, property) and isinstance(part.fget, types.FunctionType):
            parts[name] = property(with_length(part.fget))
    made = type(original.__name__, (original,), {**parts, "__module__": original.__module__, "proved_class": original})
    for part in parts.values():
        names = getattr(part, "fget", part).__globals__
        if names.get(original.__name__) is original:
            names[original.__name__] = made  # what a method makes of its own class is followed too
    return made


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

    def _index(self, index: Any) -> z3.ArithRef:
        at = number(index)
        if not SymbolicBool(z3.And(at >= 0, at < self.length.term)):
            raise IndexError(f"{at} is no index of the list")
        return at

    def __setitem__(self, index: Any, value: Any) -> None:
        at, before, new = self._index(index), self.read, _item(value)
        self.read = lambda i: z3.If(i == at, new, before(i))

    def _refuse(self, *_: Any) -> Any:
        raise refuse("a list of any length is compared, searched or gone over as a whole")

    __eq__ = __ne__ = _refuse
    __hash__ = __iter__ = __contains__ = __reversed__ = _refuse


@dataclass(frozen=True)
class Iterated:
    """What a loop goes over. sources: the objects. item: the term at an index; value: what the code gets there."""

    sources: tuple[Any, ...]
    count: z3.ArithRef
    item: Read
    value: Callable[[z3.ArithRef], Any]


Begin = Callable[[Iterated, types.FrameType], Iterator[Any]]
_BEGINNING: list[Begin] = []


@contextmanager
def iterating(begin: Begin) -> Iterator[None]:
    """Within the block, `begin` makes the iterators of loops of any length."""
    _BEGINNING.append(begin)
    try:
        yield
    finally:
        _BEGINNING.pop()


def _iterator(iterated: Iterated, frame: types.FrameType) -> Iterator[Any]:
    if not _BEGINNING:
        raise refuse("a list of any length is compared, searched or gone over as a whole")
    return _BEGINNING[-1](iterated, frame)


class Cells(Unbounded):
    """A list of integers of any length."""

    def __iter__(self) -> Iterator[Any]:
        if isinstance(z3.simplify(self.length.term), z3.IntNumRef):
            return self._each()
        return _iterator(self.iterated(), sys._getframe(1))

    def iterated(self) -> Iterated:
        """Its items, as they are now."""
        read = self.read
        return Iterated((self,), self.length.term, read, lambda at: SymbolicInt(read(at)))

    def _each(self) -> Iterator[Any]:
        place = 0
        while place < self.length:
            yield self[place]
            place += 1

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

    def append(self, value: Any) -> None:
        """Add an item at the end."""
        end, before, new = self.length.term, self.read, _item(value)
        self.length = self.length + 1
        self.read = lambda i: z3.If(i == end, new, before(i))

    def copy(self) -> "Cells":
        """Another list with the same items."""
        return Cells(self.length.term, self.read)


class Reference(Hidden):
    """An object of which a list can have many; which one it is, is a number. Nothing but its attributes is known."""

    __slots__ = ("number",)

    def __init__(self, number: z3.ArithRef) -> None:
        self.number = number

    def _refuse(self, *_: Any) -> Any:
        raise refuse("an object of which a list has many is compared, asked or computed with")

    __bool__ = __index__ = __eq__ = __ne__ = __hash__ = __lt__ = __gt__ = __add__ = __iter__ = _refuse


class References(Unbounded):
    """A list of such objects, or of None. What is in it is unknown before a call, so it is only written."""

    def __getitem__(self, index: Any) -> Any:
        raise refuse("an object of a list of any length is read, and it may be None")


def _item(value: Any) -> z3.ArithRef:
    """The term for what is put into a list: a number, or the number of an object."""
    return value.number if isinstance(value, Reference) else number(value)


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


class Numbers(Hidden):
    """Consecutive numbers, of any number, to go over; replaces a `range`."""

    def __init__(self, start: z3.ArithRef, stop: z3.ArithRef) -> None:
        self.start, self.stop = start, stop

    def __iter__(self) -> Iterator[Any]:
        start = self.start
        iterated = Iterated((self,), self.stop - start, lambda at: start + at, lambda at: SymbolicInt(start + at))
        return _iterator(iterated, sys._getframe(1))


class Pairs(Hidden):
    """The items of two lists of any length, pair by pair; replaces a `zip`."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def __iter__(self) -> Iterator[Any]:
        one, other = self.first.iterated(), self.second.iterated()
        count = z3.If(one.count < other.count, one.count, other.count)
        sources = (self, *one.sources, *other.sources)
        iterated = Iterated(sources, count, one.item, lambda at: (one.value(at), other.value(at)))
        return _iterator(iterated, sys._getframe(1))


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
