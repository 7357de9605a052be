"""How many records an object keeps: the entries of all containers and the fields of all objects that it reaches.

A manager that is idle, with an empty prefix cache, needs no record of earlier requests. The number of its records then
tells whether it forgets what it no longer needs, without knowing how it is written. Values (numbers, texts, arrays) and
code (functions, types, modules) are counted as one entry of what holds them, and are not entered.
"""

from collections import deque
from collections.abc import Iterable, Mapping
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
        entries = list(_entries(one))
        count += len(entries)
        left += entries
    return count


def _entries(one: Any) -> Iterable[Any]:
    """What a container holds, or the values of the fields of an object."""
    if isinstance(one, Mapping):
        yield from one.keys()
        yield from one.values()
        return
    if isinstance(one, CONTAINERS):
        yield from one
    yield from getattr(one, "__dict__", {}).values()
    for kind in type(one).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(one, name):
                yield getattr(one, name)
