"""The optimized block manager. Start with `block_manager`; `device_blocks` holds the state it works on."""

from .admission import AllocStatus
from .block_manager import BlockManager, SelfAttnBlockSpaceManager
from .block_pool import BlockPool
from .block_table import BlockList, BlockTable
from .device import Device
from .device_allocator import CpuGpuBlockAllocator, NullBlock
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
from .naive import BlockAllocator, NaiveBlock, NaiveBlockAllocator
from .prefix_caching import EvictionPolicy, PrefixCachingBlock, PrefixCachingBlockAllocator
from .refcount import CopyOnWriteTracker, ReadOnlyRefCounter, RefCounter
from .sequence import Sequence, SequenceData, SequenceGroup, SequenceStatus
from .trackers import ComputedBlocksTracker, LastAccessBlocksTracker

__all__ = [
    "AllocStatus",
    "BlockAllocator",
    "BlockList",
    "BlockManager",
    "BlockManagerError",
    "BlockPool",
    "BlockTable",
    "CacheMetricData",
    "ComputedBlocksTracker",
    "CopyOnWriteTracker",
    "CpuGpuBlockAllocator",
    "Device",
    "DoubleFreeError",
    "DuplicateSequenceError",
    "EvictionPolicy",
    "InvalidValueError",
    "LRUEvictor",
    "LastAccessBlocksTracker",
    "NaiveBlock",
    "NaiveBlockAllocator",
    "NoFreeBlocksError",
    "NullBlock",
    "PrefixCachingBlock",
    "PrefixCachingBlockAllocator",
    "ReadOnlyError",
    "ReadOnlyRefCounter",
    "RefCounter",
    "SelfAttnBlockSpaceManager",
    "Sequence",
    "SequenceData",
    "SequenceGroup",
    "SequenceStatus",
    "UnknownBlockError",
    "UnknownSequenceError",
    "WrongDeviceError",
]
