"""The frame of a call: what it may not change is the same object afterwards, with the same content.

A proof compares with its rule what the relation between state and objects names. Everything else that the objects have
must be as it was: a method that keeps something in a field of its own could behave otherwise the next time, though each
single call is right.
"""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from kvproof.models.concolic.refusal import Hidden, Opaque
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, both, equal

Field = tuple[Any, str]  # an object, and the name of its attribute


class Container(Hidden):
    """A container of unknown length: it knows its content at a moment."""

    __slots__ = ()

    def content(self) -> Any:
        """The content at this moment."""
        raise NotImplementedError

    def has_content(self, content: Any) -> Any:
        """Whether the content is as it was at another moment: a truth value, or a term."""
        raise NotImplementedError


@dataclass(frozen=True)
class Snapshot:
    """An attribute before the call: its value, and the content of the value if it is a container."""

    value: Any
    content: Any


def fields_of(subject: Any) -> dict[str, Any]:
    """The attributes of an object by name, whether in its dict or in slots."""
    kind: Any = type(subject)
    found = dict(getattr(subject, "__dict__", {}))
    found.update((name, getattr(subject, name)) for name in _slots(kind) if hasattr(subject, name))
    return found


@cache
def _slots(kind: type) -> tuple[str, ...]:
    of_each = (base.__dict__.get("__slots__", ()) for base in kind.__mro__)
    return tuple(name for slots in of_each for name in ((slots,) if isinstance(slots, str) else slots))


class Frame:
    """The attributes of some objects before a call.

    changes: attributes whose content may change; the object stays. replaced: those that may be another object.
    """

    def __init__(self, *subjects: Any, changes: Collection[str] = (), replaced: Collection[str] = ()) -> None:
        self._changes, self._replaced = frozenset(changes), frozenset(replaced)
        self._before = [
            (one, {name: Snapshot(value, _content(value)) for name, value in fields_of(one).items()})
            for one in subjects
        ]

    def parts(self) -> Iterator[tuple[str, Any]]:
        """For each attribute its name, and whether it is as it was: a truth value, or a term."""
        for subject, before in self._before:
            now = fields_of(subject)
            kind = type(subject).__name__
            for name in sorted(now.keys() | before.keys()):
                full = f"{kind}.{name}"
                if full in self._replaced:
                    continue
                if name not in now or name not in before:
                    yield full, False
                    continue
                kept, value = before[name], now[name]
                same = is_same(kept.value, value)
                if same is True and full not in self._changes and kept.content is not None:
                    same = _has_content(value, kept.content)
                yield full, same

    def holds(self) -> Any:
        """Whether nothing else has changed: a truth value, or a term."""
        return both(same for _, same in self.parts())

    def broken(self) -> list[str]:
        """The names of the attributes that are not as they were, whatever the numbers are."""
        return [name for name, same in self.parts() if same is False]


def _content(value: Any) -> Any:
    if isinstance(value, Container):
        return value.content()
    if isinstance(value, (list, deque, bytearray)):
        return list(value)
    if isinstance(value, dict):
        return list(value.items())
    return set(value) if isinstance(value, set) else None


def _has_content(value: Any, content: Any) -> Any:
    return value.has_content(content) if isinstance(value, Container) else equal(_content(value), content)


def is_same(before: Any, now: Any) -> Any:
    """Whether a value is the one before: the same object, or an equal number."""
    if before is now:
        return True
    numbers = (int, float, SymbolicInt, SymbolicBool)
    if isinstance(before, Hidden) or isinstance(now, Hidden):
        is_known = isinstance(before, numbers) and isinstance(now, numbers)
        return equal(before, now) if is_known and not isinstance(before, Opaque) else False
    return type(before) is type(now) and isinstance(before, (int, float, str)) and before == now
