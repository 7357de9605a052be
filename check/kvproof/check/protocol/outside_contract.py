"""When a call counts as outside the contract of the engine, which is no fault of the manager.

`OutsideContract` is the word of the adapter's author: such a call is excused, and what it would have shown is not
judged. So it counts only

- if the adapter raises it. An adapter is whatever offers the protocol: the object that is judged, or one that it uses.
  A class that is adapter and manager in one is the adapter. The manager below it has no say: what it raises is an
  exception like any other, and a finding. A function belongs to who called it, as in `adapter_fault`.
- if `assumptions` declares its name, so that the report says what is assumed. Otherwise the adapter is at fault.
- in a call that a caller may leave out. To observe the manager is always allowed.

A program behind a pipe cannot raise it: an error of that name is an exception of the manager.
"""

from typing import Any

from kvproof.check.protocol.adapter_fault import adapter_error, is_raised_by_subject, wrapped
from kvproof.check.protocol.manager import OutsideContract

ALWAYS_ALLOWED = ("observe", "observe_part")


class OutsideThere(OutsideContract):
    """The same from a subject in another process, where it was seen that the adapter raised it."""


def is_outside_contract(error: OutsideContract, call: str, subject: Any) -> bool:
    """Whether the call, which raised this, was outside the contract. Raises AdapterError if that was not declared."""
    adapter = wrapped(subject)
    if not isinstance(error, OutsideThere) and not is_raised_by_subject(error, adapter):
        return False
    name = getattr(error, "assumption", None)
    declared = [one.name for one in getattr(adapter, "assumptions", ())]
    if type(name) is not str or name not in declared:
        names = ", ".join(declared) or "none"
        text = f"{call} raised OutsideContract of {name!r}, which `assumptions` does not declare (it declares: {names})"
        raise adapter_error(text, adapter, call) from error
    if call in ALWAYS_ALLOWED:
        raise adapter_error(f"{call} raised OutsideContract, but it is always allowed", adapter, call) from error
    return True
