"""What moves bytes, as the harness sees it.

An executor is prepared once for the tensors of a case, as an engine is built once, and then called for each step. It
executes the three lists of a step in the worker's order: swaps in, swaps out, copies. When a call returns its work has
ended, or is ordered before later work of the current stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvproof.check.data_plane.memory.layouts import Geometry
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves

MoveBlocks = Callable[[Moves], object]


def supports_all(geometry: Geometry, device: torch.device) -> str:
    """Every layout, element type and device."""
    return ""


@dataclass(frozen=True)
class Executor:
    """`prepare` gives the function that does one step.

    unsupported: why a case cannot be run with it, as a sentence; empty if it can. is_own: it is the user's, known by
    `name` as module:function, and runs in a process of its own where both pools lie in main memory, for a crash of it
    must not be ours.
    """

    name: str
    prepare: Callable[[Caches], MoveBlocks]
    unsupported: Callable[[Geometry, torch.device], str] = supports_all
    is_own: bool = False
