"""The types and the texts of what a store answers."""

from collections.abc import Sequence

from kvproof.check.protocol.finding import AdapterError


def are_ints(numbers: object) -> bool:
    """Whether this is a list of numbers."""
    return isinstance(numbers, list) and all(type(number) is int for number in numbers)


def check_slots(name: str, keys: object, slots: object) -> None:
    """Raise AdapterError unless these are lists of numbers, with one slot for each key."""
    if not (isinstance(keys, list) and isinstance(slots, list) and are_ints(keys + slots) and len(keys) == len(slots)):
        raise AdapterError(f"{name} must return lists of ints, one slot for each key; it returned {keys}, {slots}")


def slots_text(slots: Sequence[int]) -> str:
    """Slots as text."""
    return f"slot{'s' if len(slots) != 1 else ''} {', '.join(map(str, slots))}" if slots else "no slot"
