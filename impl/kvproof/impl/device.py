"""The two places where blocks lie."""

from __future__ import annotations

import enum


class Device(enum.Enum):
    """GPU memory, where the model reads and writes, or host memory, where groups wait."""

    GPU = enum.auto()
    CPU = enum.auto()
