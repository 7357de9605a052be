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

from kvproof.spec.extras import require_extra

from .admission import AllocStatus as AllocStatus
from .block_arithmetic import num_cpu_blocks as num_cpu_blocks
from .block_arithmetic import num_gpu_blocks as num_gpu_blocks
from .block_manager import BlockManager as BlockManager
from .block_manager import SelfAttnBlockSpaceManager as SelfAttnBlockSpaceManager
from .cached_blocks import CacheMetricData as CacheMetricData
from .device_blocks import Device as Device
from .errors import BlockManagerError as BlockManagerError
from .errors import BlockOutOfRangeError as BlockOutOfRangeError
from .errors import ChainedCopyError as ChainedCopyError
from .errors import DoubleFreeError as DoubleFreeError
from .errors import DuplicateSequenceError as DuplicateSequenceError
from .errors import DuplicateTargetError as DuplicateTargetError
from .errors import InvalidValueError as InvalidValueError
from .errors import MappingFormError as MappingFormError
from .errors import NoFreeBlocksError as NoFreeBlocksError
from .errors import ReadOnlyError as ReadOnlyError
from .errors import UnknownBlockError as UnknownBlockError
from .errors import UnknownSequenceError as UnknownSequenceError
from .errors import UnsupportedError as UnsupportedError
from .errors import WrongDeviceError as WrongDeviceError
from .evictor import LRUEvictor as LRUEvictor
from .scheduler import ScheduledSequenceGroup as ScheduledSequenceGroup
from .scheduler import Scheduler as Scheduler
from .scheduler import SchedulerOutputs as SchedulerOutputs
from .scheduler_config import SchedulerConfig as SchedulerConfig
from .sequence import LogicalTokenBlock as LogicalTokenBlock
from .sequence import LogicalTokenBlocks as LogicalTokenBlocks
from .sequence import Sequence as Sequence
from .sequence import SequenceData as SequenceData
from .sequence import SequenceGroup as SequenceGroup
from .sequence import SequenceStatus as SequenceStatus
from .vllm_api.block_pool import BlockPool as BlockPool
from .vllm_api.block_table import BlockList as BlockList
from .vllm_api.block_table import BlockTable as BlockTable
from .vllm_api.device_allocator import CpuGpuBlockAllocator as CpuGpuBlockAllocator
from .vllm_api.device_allocator import NullBlock as NullBlock
from .vllm_api.generation1 import BlockSpaceManagerV1 as BlockSpaceManagerV1
from .vllm_api.generation1 import Prefix as Prefix
from .vllm_api.generation1_blocks import CachedBlockAllocator as CachedBlockAllocator
from .vllm_api.generation1_blocks import PhysicalTokenBlock as PhysicalTokenBlock
from .vllm_api.generation1_blocks import UncachedBlockAllocator as UncachedBlockAllocator
from .vllm_api.naive import BlockAllocator as BlockAllocator
from .vllm_api.naive import NaiveBlock as NaiveBlock
from .vllm_api.naive import NaiveBlockAllocator as NaiveBlockAllocator
from .vllm_api.prefix_caching import EvictionPolicy as EvictionPolicy
from .vllm_api.prefix_caching import PrefixCachingBlock as PrefixCachingBlock
from .vllm_api.prefix_caching import PrefixCachingBlockAllocator as PrefixCachingBlockAllocator
from .vllm_api.refcount import CopyOnWriteTracker as CopyOnWriteTracker
from .vllm_api.refcount import ReadOnlyRefCounter as ReadOnlyRefCounter
from .vllm_api.refcount import RefCounter as RefCounter
from .vllm_api.trackers import ComputedBlocksTracker as ComputedBlocksTracker
from .vllm_api.trackers import LastAccessBlocksTracker as LastAccessBlocksTracker

if TYPE_CHECKING:
    from .kv_cache_engine import BlockMover as BlockMover
    from .kv_cache_engine import CacheEngine as CacheEngine
    from .kv_cache_engine import KVCacheEngine as KVCacheEngine
    from .kv_cache_engine import Moved as Moved
    from .kv_layout import KVBlockShape as KVBlockShape
    from .kv_layout import KVLayout as KVLayout
    from .kv_layout import block_bytes as block_bytes
    from .kv_layout import cache_dtype as cache_dtype
    from .kv_memory import Decoder as Decoder
    from .kv_memory import ModelGeometry as ModelGeometry
    from .kv_memory import free_bytes as free_bytes
    from .kv_memory import num_blocks as num_blocks
    from .kv_memory import profile_num_available_blocks as profile_num_available_blocks

_WITH_TORCH = {
    "kv_cache_engine": ("BlockMover", "CacheEngine", "KVCacheEngine", "Moved"),
    "kv_layout": ("KVBlockShape", "KVLayout", "block_bytes", "cache_dtype"),
    "kv_memory": (
        "Decoder",
        "ModelGeometry",
        "free_bytes",
        "num_blocks",
        "profile_num_available_blocks",
    ),
}


def __getattr__(name: str) -> Any:
    """Import a name that needs torch when it is used: importing torch takes longer than most commands."""
    for module, names in _WITH_TORCH.items():
        if name in names:
            require_extra("device", f"kvproof.impl.{name}")
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
