"""Whether an adapter keeps the protocol of the loop, and whether it is one of it at all."""

from typing import Any

from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Capabilities
from kvproof.check.protocol.scheduler import AheadSubject, ForkingSubject, SchedulerSubject, TransferringSubject


def _calls(protocol: type) -> tuple[str, ...]:
    return tuple(name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_"))


CALLS = _calls(SchedulerSubject)
MORE = (
    ("transfers", "transfers KV", _calls(TransferringSubject)),
    ("runs_ahead", "runs ahead", _calls(AheadSubject)),
    ("forks_itself", "forks by itself", _calls(ForkingSubject)),
)
EVERY_CALL = (*CALLS, *(name for _, _, calls in MORE for name in calls))


def is_scheduler_subject(subject: Any) -> bool:
    """Whether this is a whole scheduler, and not a manager."""
    return callable(getattr(subject, "schedule", None)) and callable(getattr(subject, "add_request", None))


def check_scheduler_adapter(subject: Any) -> None:
    """Raise AdapterError unless the subject has every call, its capabilities and its name."""
    missing = [name for name in CALLS if not callable(getattr(subject, name, None))]
    if missing:
        raise AdapterError(f"{type(subject).__name__} is no loop subject: it has no {', '.join(missing)}")
    if not isinstance(getattr(subject, "capabilities", None), Capabilities):
        raise AdapterError(f"{type(subject).__name__}.capabilities must be a Capabilities")
    for capability, does, calls in MORE:
        missing = [name for name in calls if not callable(getattr(subject, name, None))]
        if getattr(subject.capabilities, capability) and missing:
            raise AdapterError(f"{type(subject).__name__} says that it {does}, and has no {', '.join(missing)}")
    if not isinstance(getattr(subject, "name", None), str):
        raise AdapterError(f"{type(subject).__name__}.name must be a string")
