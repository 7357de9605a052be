"""The judges: subjects driven in lockstep with the specification, and what they find.

What someone who has a block manager needs is here: `run_conformance`, `ManagerAdapter` and the words of the protocol.
They are imported when they are first asked for, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproof.check.conformance import run_conformance as run_conformance
    from kvproof.check.protocol.capabilities import Capabilities as Capabilities
    from kvproof.check.protocol.capabilities import EncoderCan as EncoderCan
    from kvproof.check.protocol.capabilities import ManagerCan as ManagerCan
    from kvproof.check.protocol.capabilities import PairCan as PairCan
    from kvproof.check.protocol.capabilities import PoolCan as PoolCan
    from kvproof.check.protocol.capabilities import SchedulerCan as SchedulerCan
    from kvproof.check.protocol.capabilities import StoreCan as StoreCan
    from kvproof.check.protocol.manager import Admission as Admission
    from kvproof.check.protocol.manager import Admitted as Admitted
    from kvproof.check.protocol.manager import Assumption as Assumption
    from kvproof.check.protocol.manager import Config as Config
    from kvproof.check.protocol.manager import Observation as Observation
    from kvproof.check.protocol.manager import Refused as Refused
    from kvproof.check.protocol.manager import Reserved as Reserved
    from kvproof.check.protocol.manager import Unsupported as Unsupported
    from kvproof.check.protocol.manager_adapter import ManagerAdapter as ManagerAdapter
    from kvproof.check.runs.replay import assert_fixed as assert_fixed

SUBJECT = "kvproof.check.protocol.manager"
CAN = "kvproof.check.protocol.capabilities"
HOMES = {
    "ManagerAdapter": "kvproof.check.protocol.manager_adapter",
    "assert_fixed": "kvproof.check.runs.replay",
    "run_conformance": "kvproof.check.conformance",
    "Admission": SUBJECT,
    "Admitted": SUBJECT,
    "Assumption": SUBJECT,
    "Capabilities": CAN,
    "EncoderCan": CAN,
    "ManagerCan": CAN,
    "PairCan": CAN,
    "PoolCan": CAN,
    "SchedulerCan": CAN,
    "StoreCan": CAN,
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
