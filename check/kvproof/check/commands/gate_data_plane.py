"""The data plane in the gate: a short form of `kvproof device`, without speeds.

Only what is built in has a data plane that can be run: its engine moves bytes, its scheduler and manager generate text.
"""

from kvproof.check.commands.generating import generating_stage
from kvproof.check.commands.moving import Moving, correctness_stage
from kvproof.check.session import Stage
from kvproof.spec.data_plane_report import DataPlane

SUBJECTS = ("kvproof", "kvproof-scheduler")
ENGINE = "engine"


def short_stages(subject: str, device: str = "cpu", note: str = "") -> tuple[list[Stage], DataPlane | None]:
    """Its stages on a device, and what they fill; nothing for a subject that is not built in. The note goes along."""
    if subject not in SUBJECTS:
        return [], None
    plane = DataPlane(device, notes=[note] if note else [])
    moving = Moving(device, (ENGINE,), is_short=True, plane=plane)
    return [correctness_stage(moving, share=8), generating_stage(moving, share=4)], plane
