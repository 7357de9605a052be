"""The optimized block manager. Start with `block_manager`; `device_blocks` holds the state it works on."""

from .admission import AllocStatus
from .block_manager import BlockManager, SelfAttnBlockSpaceManager
from .device import Device
from .errors import (
    BlockManagerError,
    DoubleFreeError,
    DuplicateSequenceError,
    InvalidValueError,
    NoFreeBlocksError,
    ReadOnlyError,
    UnknownBlockError,
    UnknownSequenceError,
    WrongDeviceError,
)
from .evictor import LRUEvictor
from .hit_rate import CacheMetricData
from .sequence import Sequence, SequenceData, SequenceGroup, SequenceStatus

__all__ = [
    "AllocStatus",
    "BlockManager",
    "BlockManagerError",
    "CacheMetricData",
    "Device",
    "DoubleFreeError",
    "DuplicateSequenceError",
    "InvalidValueError",
    "LRUEvictor",
    "NoFreeBlocksError",
    "ReadOnlyError",
    "SelfAttnBlockSpaceManager",
    "Sequence",
    "SequenceData",
    "SequenceGroup",
    "SequenceStatus",
    "UnknownBlockError",
    "UnknownSequenceError",
    "WrongDeviceError",
]
