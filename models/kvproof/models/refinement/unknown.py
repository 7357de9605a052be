"""What the relation does not name: before a call, each such attribute has a value of which nothing is known.

A proof that ran on a new object would know the first value of every field, and would be about no other. So numbers and
truth values become arbitrary ones, lists get any length and any items, and of everything else nothing is known: it can
be passed on, and nothing more (`concolic.refusal.Opaque`).
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import z3

from kvproof.models.concolic.frame import fields_of
from kvproof.models.concolic.refusal import Opaque
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt
from kvproof.models.refinement.unbounded import Cells, Ring


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
