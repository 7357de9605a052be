"""Whether an adapter keeps the protocol: it has every call, and what it answers has the right type.

Types are not checked in each call, for speed: they are checked when a subject is opened, and again before a finding
is believed, so that nonsense is reported as the adapter's fault and not as the manager's.
"""

from typing import Any

from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Capabilities, ManagerSubject, Observation

CALLS = tuple(
    name for name in vars(ManagerSubject) if not name.startswith("_") and callable(vars(ManagerSubject)[name])
)


def check_adapter(subject: Any) -> None:
    """Raise AdapterError unless the subject has every call, its capabilities and its assumptions."""
    missing = [name for name in CALLS if not callable(getattr(subject, name, None))]
    if missing:
        raise AdapterError(f"{type(subject).__name__} is no subject: it has no {', '.join(missing)}")
    if not isinstance(getattr(subject, "capabilities", None), Capabilities):
        raise AdapterError(f"{type(subject).__name__}.capabilities must be a Capabilities")
    if not isinstance(getattr(subject, "name", None), str):
        raise AdapterError(f"{type(subject).__name__}.name must be a string")


def check_answer(name: str, answer: Any, *types: type) -> None:
    """Raise AdapterError unless the answer of a call is of one of the types."""
    if not isinstance(answer, types):
        wanted = " or ".join(t.__name__ for t in types)
        raise AdapterError(f"{name} must return {wanted}; it returned {_short(answer)}")


def check_pairs(name: str, pairs: Any) -> None:
    """Raise AdapterError unless these are pairs of block ids."""
    check_answer(name, pairs, list, tuple)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(type(x) is int for x in pair)):
            raise AdapterError(f"{name} must return pairs of ints; one is {_short(pair)}")


def check_observation(seen: Any, num_groups: int) -> None:
    """Raise AdapterError unless this is an Observation all through."""
    check_answer("observe", seen, Observation)
    if not isinstance(seen.tables, dict):
        raise AdapterError(f"observe().tables must be a dict; it is {_short(seen.tables)}")
    for seq, tables in seen.tables.items():
        if type(seq) is not int or not isinstance(tables, list) or len(tables) not in (0, num_groups):
            raise AdapterError(
                f"observe().tables must map sequences to lists of {num_groups} tables; found {seq!r}: {_short(tables)}"
            )
        for table in tables:
            _check_ids(f"observe().tables[{seq}]", table)
    if not isinstance(seen.free, tuple) or len(seen.free) != 2 or any(type(x) is not int for x in seen.free):
        raise AdapterError(f"observe().free must be two ints, for GPU and host; it is {_short(seen.free)}")
    if not isinstance(seen.reserved, tuple):
        raise AdapterError(f"observe().reserved must be a tuple of block ids; it is {_short(seen.reserved)}")
    for field in ("refs", "free_ids"):
        if getattr(seen, field) is not None:
            _check_ids(f"observe().{field}", getattr(seen, field))


def _check_ids(what: str, ids: Any) -> None:
    if not isinstance(ids, list) or any(type(x) is not int for x in ids):
        raise AdapterError(f"{what} must be a list of ints; it is {_short(ids)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
