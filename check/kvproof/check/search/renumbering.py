"""Number the groups, sequences, requests and holders of a run from 1, in the order in which they appear.

A walk that has done a million operations is at group 250,000. The run that is left of it after shrinking is about group
1. The subject is given the new numbers, so that the steps, the messages of the subject and a debugger agree; a fault
that needs the old numbers keeps them, because the run with new numbers then refutes nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kvproof.check.oracle.level import typed
from kvproof.check.protocol.operations import TypedOperation
from kvproof.spec.trace import Operation

GROUP, SEQUENCE, HOLDER, TRANSFER = "group", "sequence", "holder", "transfer"
KINDS = {  # of the fields that hold one number, or several
    "group": GROUP,
    "request": GROUP,
    "seq": SEQUENCE,
    "seqs": SEQUENCE,
    "stops": SEQUENCE,
    "arrivals": SEQUENCE,
    "forks": SEQUENCE,
    "holder": HOLDER,
    "others": HOLDER,
    "transfer": TRANSFER,
}
FAMILY = ("parent", "child")  # sequences of a manager, holders of a pool

Rename = Callable[[str, int], int]


def renumbered(operations: Sequence[Operation]) -> list[Operation]:
    """The same run with numbers from 1. Two of one kind that had different numbers have different numbers."""
    numbers: dict[str, dict[int, int]] = {}

    def rename(kind: str, old: int) -> int:
        of_kind = numbers.setdefault(kind, {})
        return of_kind.setdefault(old, len(of_kind) + 1)

    return [_renamed(typed(operation), rename).as_tuple() for operation in operations]


def _renamed(operation: TypedOperation, rename: Rename) -> TypedOperation:
    changed: dict[str, Any] = {}
    for field in operation.__struct_fields__:
        value = getattr(operation, field)
        if field == "transfer" and operation.is_prompt:
            continue  # how much of a prompt is elsewhere; only in a store it is the number of a transfer
        if field == "encoder" and value:
            changed[field] = (rename(SEQUENCE, value[0]), value[1])
        elif kind := KINDS.get(field) or (field in FAMILY and (HOLDER if operation.name() == "share" else SEQUENCE)):
            changed[field] = _numbers(value, kind, rename)
    return operation.changed(**changed)


def _numbers(value: Any, kind: str, rename: Rename) -> Any:
    """The number, or the tuple of numbers or of tuples of them, with new numbers. Anything else stays."""
    if isinstance(value, tuple):
        return tuple(_numbers(one, kind, rename) for one in value)
    return rename(kind, value) if isinstance(value, int) else value
