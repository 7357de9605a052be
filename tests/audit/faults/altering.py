"""A fault of one edit, planted somewhere else or with other texts."""

from dataclasses import replace

from kvproof.audit.faults.edits import Fault


def altered(fault: Fault, **parts: str) -> Fault:
    """The same fault with other parts of its edit: file, function, old, new."""
    (edit,) = fault.plant
    return replace(fault, plant=(replace(edit, **parts),))  # type: ignore[arg-type]  # all of these are texts
