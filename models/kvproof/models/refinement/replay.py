"""Replays: every path of a proof about code is repeated with plain numbers, lists and deques, if small ones take it.

A path is followed with symbolic values. The terms that it ends with must be what Python computes, or the proof is about
something else. So the solver gives small numbers that take the path; the objects of the call are built again from them,
of the classes as they are; the call is repeated; and it must end in the same way, with every attribute, every item and
the result as the terms say.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.models.concolic.frame import fields_of
from kvproof.models.concolic.refusal import Hidden, Opaque, is_proved_code
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, truth
from kvproof.models.refinement.dictionaries import ABSENT, Dictionary, UnknownSet
from kvproof.models.refinement.loops import ANOTHER, Items
from kvproof.models.refinement.unbounded import Interval, Ring, Unbounded

LENGTH_MAX = 4  # of the containers in a replay
KEYS = range(-1, 8)  # of a dict in a replay
EFFORT_MAX = 2_000_000  # in Z3's units, for each path
Value = Callable[[Any], Any]  # of a term


class Specified(Hidden):
    """A specification that runs in place of a class of the package; it has a plain form."""

    def plain(self, value: Value) -> Any:
        """The same with plain numbers."""
        raise NotImplementedError

    def agrees(self, plain: Any, value: Value) -> bool:
        """Whether a plain form is what the terms say."""
        raise NotImplementedError


class StrictList(list[Any]):
    """A list that does not count from its end: proved code must not, so a list of any length raises there."""

    def __getitem__(self, index: Any) -> Any:
        first = index.start if isinstance(index, slice) else index
        if first < 0 or (isinstance(index, slice) and first > len(self)):
            raise IndexError(f"{first} is no index of the list")
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index < 0:
            raise IndexError(f"{index} is no index of the list")
        super().__setitem__(index, value)


class Twin:
    """The objects of a call as they are before it, and their plain forms for given numbers."""

    def __init__(self, *roots: Any) -> None:
        self._roots = roots
        self._known: dict[int, tuple[Any, Any]] = {}  # by id: the object, and what it consists of
        for one in roots:
            self._note(one)

    def _note(self, subject: Any) -> None:
        if id(subject) in self._known:
            return
        if isinstance(subject, Unbounded):
            self._known[id(subject)] = subject, subject.content()
        elif isinstance(subject, Specified):
            self._known[id(subject)] = subject, copy(subject)
        elif isinstance(subject, (Interval, Opaque, Items, Dictionary, UnknownSet)):
            self._known[id(subject)] = subject, None
        elif _is_object(subject):
            fields = fields_of(subject)
            self._known[id(subject)] = subject, fields
            for value in fields.values():
                self._note(value)

    def optional(self) -> Iterator[str]:
        """The names of attributes of which only is known that they may be None."""
        for subject, fields in self._known.values():
            for name, value in fields.items() if _is_object(subject) else ():
                if isinstance(value, Opaque) and value.may_be_none:
                    yield name

    def limits(self) -> Iterator[z3.BoolRef]:
        """Conditions for the objects to be small, and for a loop to begin where the call does."""
        for subject, content in list(self._known.values()):
            if isinstance(subject, Unbounded):
                yield z3.And(content[0] >= 0, content[0] <= LENGTH_MAX)
            if isinstance(subject, Items) and subject.head is not None:
                for _, (length, read), (length_before, read_before) in subject.head.contents:
                    yield length == length_before
                    yield from (read(z3.IntVal(n)) == read_before(z3.IntVal(n)) for n in range(LENGTH_MAX))

    def built(self, value: Value) -> dict[int, Any]:
        """The plain form of every object, by the id of the object."""
        made: dict[int, Any] = {}
        for number, (subject, _) in self._known.items():
            if _is_object(subject):
                kind: Any = getattr(type(subject), "proved_class", type(subject))
                made[number] = kind.__new__(kind)
        for number, (subject, content) in self._known.items():
            if isinstance(subject, Unbounded):
                items = [value(content[1](z3.IntVal(n))) for n in range(value(content[0]))]
                made[number] = deque(items) if isinstance(subject, Ring) else StrictList(items)
            elif isinstance(subject, Interval):
                made[number] = range(value(subject.start), value(subject.stop))
            elif isinstance(subject, Items):
                made[number] = subject.plain(value(subject.item.term), value(ANOTHER))
            elif isinstance(subject, Dictionary):
                made[number] = {key: object() for key in KEYS if value(subject.had(z3.IntVal(key)))}
            elif isinstance(subject, UnknownSet):
                made[number] = {0}
            elif isinstance(subject, Specified):
                made[number] = content.plain(value)
            elif isinstance(subject, Opaque):
                made[number] = object()
        for number, (subject, fields) in self._known.items():
            if _is_object(subject):
                for name, part in fields.items():
                    setattr(made[number], name, plain(part, made, value))
            elif isinstance(subject, Dictionary):
                for key, part in subject.known:
                    if value(key) in made[number]:
                        made[number][value(key)] = plain(part, made, value)
        return made

    def differences(self, made: dict[int, Any], value: Value) -> Iterator[str]:
        """The attributes that are not what their terms say, after the call and its repetition."""
        for number, (subject, _) in self._known.items():
            if _is_object(subject):
                ours, theirs = fields_of(subject), fields_of(made[number])
                for name in sorted(ours.keys() | theirs.keys()):
                    if name not in ours or name not in theirs or not agrees(ours[name], theirs[name], made, value):
                        yield f"{type(subject).__name__}.{name}"


def plain(subject: Any, made: dict[int, Any], value: Value) -> Any:
    """The plain form of a value."""
    if isinstance(subject, (SymbolicInt, SymbolicBool)):
        return value(subject.term)
    if isinstance(subject, tuple):
        return tuple(plain(one, made, value) for one in subject)
    return made.get(id(subject), subject)


def agrees(ours: Any, theirs: Any, made: dict[int, Any], value: Value) -> bool:
    """Whether a plain value is what the terms of another say."""
    if isinstance(ours, (SymbolicInt, SymbolicBool)):
        return is_same(value(ours.term), theirs)
    if isinstance(ours, Unbounded):
        length = value(ours.length.term)
        is_kept = id(ours) not in made or made[id(ours)] is theirs
        items = [value(ours.read(z3.IntVal(n))) for n in range(length)]
        return is_kept and len(theirs) == length and all(map(is_same, items, theirs))
    if isinstance(ours, Dictionary):
        return made.get(id(ours)) is theirs and _is_as_written(ours, theirs, made, value)
    if isinstance(ours, UnknownSet):
        return made.get(id(ours)) is theirs and theirs == ({0} if not ours.is_emptied else set())
    if isinstance(ours, Specified):
        return made.get(id(ours)) is theirs and ours.agrees(theirs, value)
    if id(ours) in made:
        return made[id(ours)] is theirs
    if isinstance(ours, (tuple, list)):
        pairs = zip(ours, theirs, strict=False)
        return len(ours) == len(theirs) and all(agrees(one, other, made, value) for one, other in pairs)
    if _is_object(ours):
        here, there = fields_of(ours), fields_of(theirs)
        return here.keys() == there.keys() and all(agrees(here[n], there[n], made, value) for n in here)
    return bool(ours == theirs)


def is_same(said: Any, computed: Any) -> bool:
    """Whether Python computed the number or the truth value that a term says: True equals 1, and is no count."""
    return isinstance(computed, bool) == isinstance(said, bool) and bool(computed == said)


def _is_as_written(ours: Dictionary, theirs: Any, made: dict[int, Any], value: Value) -> bool:
    """Whether a plain dict has the keys that the terms say, and in them what was written."""
    if any((key in theirs) != value(ours.has(z3.IntVal(key))) for key in KEYS):
        return False
    latest = {value(key): kept for key, kept in ours.written}
    return all(agrees(kept, theirs[key], made, value) for key, kept in latest.items() if kept is not ABSENT)


def numbers_for(condition: z3.BoolRef, limits: Iterable[z3.BoolRef], sizes: tuple[z3.BoolRef, ...]) -> Value | None:
    """Small numbers that take a path; None if there are none, or the solver finds none.

    sizes: conditions on the sizes of the pools and blocks, of which the first that can be met is.
    """
    solver = z3.SimpleSolver()
    solver.set(rlimit=EFFORT_MAX)
    solver.add(condition, *limits)
    for size in sizes:
        solver.push()
        solver.add(size)
        if solver.check() == z3.sat:
            model = solver.model()
            return lambda term: _number(model, term)
        solver.pop()
    return None


def _number(model: z3.ModelRef, term: Any) -> Any:
    found = model.eval(truth(term) if isinstance(term, bool) else term, model_completion=True)
    return found.as_long() if isinstance(found, z3.IntNumRef) else z3.is_true(found)


def _is_object(subject: Any) -> bool:
    is_ours = is_proved_code({"__name__": type(subject).__module__}) and not isinstance(subject, (type, Exception))
    return is_ours or isinstance(subject, SimpleNamespace)
