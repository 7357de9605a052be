"""The record of a fault that is planted on purpose, to see who notices it.

What it takes to plant a fault depends on where it is planted, so that is a type parameter: texts that are replaced in
source code (`audit/`), or what is done in place of a right move of bytes (`data_plane/`). All else is the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

P = TypeVar("P")


@dataclass(frozen=True)
class PlantedFault(Generic[P]):
    """A fault. id: its name, which never changes. plant: what is changed.

    subject: what is judged with the fault in it. kind: what sort of fault it is. row: the row of the table that counts
    it. sentence: what is wrong; empty if the name says it. found_by: who must notice it, or by which properties or
    classes of findings it may show itself. num_steps_max: how long the shortest run that shows it may be; 0 for any
    length. settings: of the run that finds it soon. equivalent: why nobody can notice it; empty if somebody can.
    blind_spot: the row of `docs/blind-spots.md` that says why it is not found; empty if it is.
    """

    id: str
    plant: P
    subject: str = ""
    kind: str = ""
    row: str = ""
    sentence: str = ""
    found_by: tuple[str, ...] = ()
    num_steps_max: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    equivalent: str = ""
    blind_spot: str = ""
