"""The judges: subjects driven in lockstep with the specification, and what they find.

What someone who has a block manager needs is here: `run_conformance`, `ManagerAdapter` and the words of the protocol.
They are imported when they are first asked for, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproof.check.adapter import ManagerAdapter as ManagerAdapter
    from kvproof.check.conformance import run_conformance as run_conformance
    from kvproof.check.subject import Admission as Admission
    from kvproof.check.subject import Admitted as Admitted
    from kvproof.check.subject import Assumption as Assumption
    from kvproof.check.subject import Capabilities as Capabilities
    from kvproof.check.subject import Config as Config
    from kvproof.check.subject import Observation as Observation
    from kvproof.check.subject import Refused as Refused
    from kvproof.check.subject import Reserved as Reserved
    from kvproof.check.subject import Unsupported as Unsupported

SUBJECT = "kvproof.check.subject"
HOMES = {
    "ManagerAdapter": "kvproof.check.adapter",
    "run_conformance": "kvproof.check.conformance",
    "Admission": SUBJECT,
    "Admitted": SUBJECT,
    "Assumption": SUBJECT,
    "Capabilities": SUBJECT,
    "Config": SUBJECT,
    "Observation": SUBJECT,
    "Refused": SUBJECT,
    "Reserved": SUBJECT,
    "Unsupported": SUBJECT,
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
