"""The data plane in `kvproof verify`: a short form of `kvproof device`, without speeds.

The built-in subjects have a complete data plane: their engine moves bytes, and their scheduler and manager generate
text. For any other manager that swaps or forks, the mappings that it emits are linted, and kvproof's engine moves bytes
by them, in main memory. This shows that a worker can execute the mappings and that every byte is then where they say.
It does not show what the manager's own engine would do with them.
"""

from collections.abc import Callable

from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.data_plane_stage import (
    JUDGE,
    DataPlaneOptions,
    EmittingManager,
    correctness_stage,
    planned,
)
from kvproof.check.runs.decoder_stage import generating_stage
from kvproof.check.runs.session import Stage
from kvproof.reports.data_plane_result import DataPlane
from kvproof.spec.verdict import Verdict

SUBJECTS = ("kvproof", "kvproof-scheduler")
ENGINE = "engine"
NOTHING_TO_MOVE = "it emits neither swaps nor copies, so there are no bytes to move"


def short_stages(device: str = "cpu", note: str = "") -> tuple[list[Stage], DataPlane]:
    """The stages of a built-in subject on a device, and the part of the result that they fill. note: for the report."""
    plane = DataPlane(device, notes=[note] if note else [])
    options = DataPlaneOptions(device, (ENGINE,), is_short=True, plane=plane)
    return [correctness_stage(options, share=8), generating_stage(options, share=4)], plane


def emits(one: ManagerSubject) -> bool:
    return one.capabilities.swap or one.capabilities.fork


def emitted_stages(
    name: str, make: Callable[[], ManagerSubject], one: ManagerSubject
) -> tuple[list[Stage], DataPlane | None]:
    """The stage of any other manager, and the part of the result that it fills; None if it emits no mappings."""
    if not emits(one):
        checks = planned((ENGINE,), Verdict.UNSUPPORTED, NOTHING_TO_MOVE)
        return [Stage(JUDGE, 0, checks, lambda budget: ())], None
    plane = DataPlane("cpu", notes=[f"The mappings are those of {name}; the engine that executed them is kvproof's."])
    options = DataPlaneOptions("cpu", (ENGINE,), is_short=True, manager=EmittingManager(name, make), plane=plane)
    return [correctness_stage(options, share=8)], plane
