"""The two devices on which blocks lie."""

import enum


class Device(enum.Enum):
    """GPU memory, which the model reads and writes, or host memory, to which groups are swapped."""

    GPU = enum.auto()
    CPU = enum.auto()
