"""Whether an adapter keeps the protocol of the loop, and whether it is one of it at all."""

from typing import Any

from kvproof.check.finding import AdapterError
from kvproof.check.loop.subject import LoopSubject, TransferringSubject
from kvproof.check.subject import Capabilities

CALLS = tuple(name for name in vars(LoopSubject) if not name.startswith("_") and callable(vars(LoopSubject)[name]))
TRANSFER_CALLS = tuple(
    name for name in vars(TransferringSubject) if callable(vars(TransferringSubject)[name]) and name[0] != "_"
)


def is_loop_subject(subject: Any) -> bool:
    """Whether this is a whole scheduler, and not a manager."""
    return callable(getattr(subject, "schedule", None)) and callable(getattr(subject, "add_request", None))


def check_loop_adapter(subject: Any) -> None:
    """Raise AdapterError unless the subject has every call, its capabilities and its name."""
    missing = [name for name in CALLS if not callable(getattr(subject, name, None))]
    if missing:
        raise AdapterError(f"{type(subject).__name__} is no loop subject: it has no {', '.join(missing)}")
    if not isinstance(getattr(subject, "capabilities", None), Capabilities):
        raise AdapterError(f"{type(subject).__name__}.capabilities must be a Capabilities")
    missing = [name for name in TRANSFER_CALLS if not callable(getattr(subject, name, None))]
    if subject.capabilities.transfers and missing:
        raise AdapterError(f"{type(subject).__name__} says that it transfers KV, and has no {', '.join(missing)}")
    if not isinstance(getattr(subject, "name", None), str):
        raise AdapterError(f"{type(subject).__name__}.name must be a string")
