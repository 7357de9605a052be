"""Whether an adapter keeps the protocol of a pool, and whether it is one at all."""

from typing import Any

from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Capabilities
from kvproof.check.protocol.pool import PoolSubject

CALLS = tuple(name for name in vars(PoolSubject) if not name.startswith("_") and callable(vars(PoolSubject)[name]))


def is_pool_subject(subject: Any) -> bool:
    """Whether this is a pool, and no manager."""
    return all(callable(getattr(subject, name, None)) for name in ("allocate", "free", "find")) and not callable(
        getattr(subject, "admit", None)
    )


def check_pool_adapter(subject: Any) -> None:
    """Raise AdapterError unless the subject has every call, its capabilities and its name."""
    missing = [name for name in CALLS if not callable(getattr(subject, name, None))]
    if missing:
        raise AdapterError(f"{type(subject).__name__} is no pool: it has no {', '.join(missing)}")
    if not isinstance(getattr(subject, "capabilities", None), Capabilities):
        raise AdapterError(f"{type(subject).__name__}.capabilities must be a Capabilities")
    if not isinstance(getattr(subject, "name", None), str):
        raise AdapterError(f"{type(subject).__name__}.name must be a string")
