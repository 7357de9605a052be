"""How many records an object keeps: the entries of all containers and the fields of all objects that it reaches.

A manager that is idle, with an empty prefix cache, needs no record of earlier requests. The number of its records then
tells whether it forgets what it no longer needs, without knowing how it is written. Values (numbers, texts, arrays) and
code (functions, types, modules) are counted as one entry of what holds them, and are not entered.
"""

from collections import deque
from collections.abc import Mapping
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

CONTAINERS = (list, tuple, set, frozenset, deque)
NOT_ENTERED = (
    type(None),
    bool,
    int,
    float,
    str,
    bytes,
    bytearray,
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
)


def num_records(root: object) -> int:
    """The number of records that are reached from an object, each object counted once."""
    seen: set[int] = set()
    left, count = [root], 0
    while left:
        one = left.pop()
        if isinstance(one, NOT_ENTERED) or id(one) in seen:
            continue
        seen.add(id(one))
        entries = _entries(one)
        count += len(entries)
        left += entries
    return count


def _entries(one: Any) -> list[Any]:
    """What a container holds, and the values of the fields of an object."""
    if isinstance(one, dict):
        return [*one.keys(), *one.values()]
    entries = list(one) if isinstance(one, CONTAINERS) else []
    if isinstance(one, Mapping):
        entries = [*one.keys(), *one.values()]
    entries += getattr(one, "__dict__", {}).values()
    entries += [getattr(one, name) for name in _slots(one.__class__) if hasattr(one, name)]
    return entries


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """The names of the slots of the instances of a class."""
    found: list[str] = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))
