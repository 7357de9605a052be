"""The data plane in the gate: a short form of `kvproof device`, without speeds.

What is built in has a data plane that is run whole: its engine moves bytes, its scheduler and manager generate text. Of
any other manager that swaps or forks, the mappings that it emits are linted, and kvproof's engine moves bytes by them,
in main memory: that tells that a worker can execute them, and that every byte then is where they say. What an engine of
its own would do with them it does not tell.
"""

from collections.abc import Callable

from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.data_plane_stage import (
    COPIES,
    HAZARDS,
    JUDGE,
    LINTER,
    SWAPS,
    Emitting,
    Moving,
    correctness_stage,
)
from kvproof.check.runs.decoder_stage import generating_stage
from kvproof.check.runs.session import Stage
from kvproof.reports.data_plane_result import DataPlane
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

SUBJECTS = ("kvproof", "kvproof-scheduler")
ENGINE = "engine"
NOTHING_TO_MOVE = "it emits neither swaps nor copies, so there are no bytes to move"


def short_stages(device: str = "cpu", note: str = "") -> tuple[list[Stage], DataPlane]:
    """The stages of what is built in on a device, and what they fill; the note goes along."""
    plane = DataPlane(device, notes=[note] if note else [])
    moving = Moving(device, (ENGINE,), is_short=True, plane=plane)
    return [correctness_stage(moving, share=8), generating_stage(moving, share=4)], plane


def emits(one: ManagerSubject) -> bool:
    """Whether a worker has anything to move for this manager."""
    return one.capabilities.swap or one.capabilities.fork


def emitted_stages(
    name: str, make: Callable[[], ManagerSubject], one: ManagerSubject
) -> tuple[list[Stage], DataPlane | None]:
    """The stage of another manager, and what it fills."""
    if not emits(one):
        said = [
            Check(f"{JUDGE}/{claim}/{who}", JUDGE, claim, Verdict.UNSUPPORTED, text=NOTHING_TO_MOVE)
            for claim, who in ((SWAPS, ENGINE), (COPIES, ENGINE), (HAZARDS, LINTER))
        ]
        return [Stage(JUDGE, 0, said, lambda stint: ())], None
    plane = DataPlane("cpu", notes=[f"The mappings are those of {name}; the engine that executed them is kvproof's."])
    moving = Moving("cpu", (ENGINE,), is_short=True, emitting=Emitting(name, make), plane=plane)
    return [correctness_stage(moving, share=8)], plane
