"""The built-in block manager. Start with `block_manager`; `device_blocks` has the state on which it works.

`scheduler` decides which requests run in a step. `vllm_api` has the block objects and the first generation's manager of
vLLM's public interface. `kv_cache_engine` has the KV tensors and moves them; it needs torch, which is imported when one
of its names is used.

Known faults of earlier managers, and what this one does instead (each has a test in
`tests/impl/test_known_upstream_faults.py`):

- *OK, then no blocks*: admission counts the whole prompt, window or not; swap-in counts the waiting token, the
  lookahead, copies, the null block, and every block it moves; an append counts its own null block.
- *A wait without end*: in an idle pool the watermark refuses nobody.
- *Counted twice*: a swap takes a new block for each distinct block, so evictable ones are only ever free.
- *Null block*: no table has a reference to it, so forks, swaps and frees skip it.
- *Hit on KV never computed*: only blocks whose every slot was computed are marked, evictable, or exchanged for.
- *Sharing lost by a swap*: each block of a group moves once, and its cross-attention table moves with it.
- *Shared lookahead*: a shared block is replaced before a write even if only junk is written.
- *Identity by hash*: contents are compared, not hashed.
- *Objects in the wrong pool*: both devices use one pool, which refuses objects that are not its own.
- *Hazards in a step*: the source of a copy is not exchanged; two swap-ins do not land on one block.
- *Quadratic or recursive walks*: chains are walked in loops; physical ids are looked up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    UnsupportedError,
    WrongDeviceError,
)
from .evictor import LRUEvictor
from .hit_rate import CacheMetricData
from .kv_cache_engine_errors import (
    BlockOutOfRangeError,
    ChainedCopyError,
    DuplicateTargetError,
    MappingFormError,
)
from .logical_blocks import LogicalTokenBlock, LogicalTokenBlocks
from .scheduler import Scheduler
from .scheduler_config import SchedulerConfig
from .scheduler_outputs import ScheduledSequenceGroup, SchedulerOutputs
from .sequence import Sequence, SequenceData, SequenceGroup, SequenceStatus
from .vllm_api.block_pool import BlockPool
from .vllm_api.block_table import BlockList, BlockTable
from .vllm_api.device_allocator import CpuGpuBlockAllocator, NullBlock
from .vllm_api.generation1 import BlockSpaceManagerV1
from .vllm_api.generation1_blocks import CachedBlockAllocator, PhysicalTokenBlock, UncachedBlockAllocator
from .vllm_api.generation1_prefix import Prefix
from .vllm_api.naive import BlockAllocator, NaiveBlock, NaiveBlockAllocator
from .vllm_api.prefix_caching import EvictionPolicy, PrefixCachingBlock, PrefixCachingBlockAllocator
from .vllm_api.refcount import CopyOnWriteTracker, ReadOnlyRefCounter, RefCounter
from .vllm_api.trackers import ComputedBlocksTracker, LastAccessBlocksTracker

if TYPE_CHECKING:
    from .block_mover import BlockMover, Moved
    from .decoder import Decoder, ModelGeometry
    from .kv_cache_engine import CacheEngine, KVCacheEngine
    from .kv_layout import KVBlockShape, KVLayout, block_bytes, cache_dtype
    from .kv_memory import free_bytes, num_blocks, num_cpu_blocks, num_gpu_blocks, profile_num_available_blocks

__all__ = [
    "AllocStatus",
    "BlockAllocator",
    "BlockList",
    "BlockManager",
    "BlockManagerError",
    "BlockMover",
    "BlockOutOfRangeError",
    "BlockPool",
    "BlockSpaceManagerV1",
    "BlockTable",
    "CacheEngine",
    "CacheMetricData",
    "CachedBlockAllocator",
    "ChainedCopyError",
    "ComputedBlocksTracker",
    "CopyOnWriteTracker",
    "CpuGpuBlockAllocator",
    "Decoder",
    "Device",
    "DoubleFreeError",
    "DuplicateSequenceError",
    "DuplicateTargetError",
    "EvictionPolicy",
    "InvalidValueError",
    "KVBlockShape",
    "KVCacheEngine",
    "KVLayout",
    "LRUEvictor",
    "LastAccessBlocksTracker",
    "LogicalTokenBlock",
    "LogicalTokenBlocks",
    "MappingFormError",
    "ModelGeometry",
    "Moved",
    "NaiveBlock",
    "NaiveBlockAllocator",
    "NoFreeBlocksError",
    "NullBlock",
    "PhysicalTokenBlock",
    "Prefix",
    "PrefixCachingBlock",
    "PrefixCachingBlockAllocator",
    "ReadOnlyError",
    "ReadOnlyRefCounter",
    "RefCounter",
    "ScheduledSequenceGroup",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerOutputs",
    "SelfAttnBlockSpaceManager",
    "Sequence",
    "SequenceData",
    "SequenceGroup",
    "SequenceStatus",
    "UncachedBlockAllocator",
    "UnknownBlockError",
    "UnknownSequenceError",
    "UnsupportedError",
    "WrongDeviceError",
    "block_bytes",
    "cache_dtype",
    "free_bytes",
    "num_blocks",
    "num_cpu_blocks",
    "num_gpu_blocks",
    "profile_num_available_blocks",
]

_WITH_TORCH = {
    "BlockMover": "block_mover",
    "Decoder": "decoder",
    "ModelGeometry": "decoder",
    "CacheEngine": "kv_cache_engine",
    "KVCacheEngine": "kv_cache_engine",
    "Moved": "block_mover",
    "KVBlockShape": "kv_layout",
    "KVLayout": "kv_layout",
    "block_bytes": "kv_layout",
    "cache_dtype": "kv_layout",
    "free_bytes": "kv_memory",
    "num_blocks": "kv_memory",
    "num_cpu_blocks": "kv_memory",
    "num_gpu_blocks": "kv_memory",
    "profile_num_available_blocks": "kv_memory",
}


def __getattr__(name: str) -> Any:
    """Import a name that needs torch when it is used: importing torch takes longer than most commands."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WITH_TORCH[name]}", __name__), name)
