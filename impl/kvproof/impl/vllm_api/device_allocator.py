"""Block objects on two devices with one id space: GPU ids first, then CPU ids.

Calls about a block go to the device on which its id lies. All objects come from one pool, and this is their allocator.
So an object that was swapped is still written, forked and freed on the right device.

Source: vLLM 0.9, vllm/core/block/cpu_gpu_block_allocator.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..cached_blocks import CachedBlocks
from ..device_blocks import Device, DeviceBlocks
from ..errors import InvalidValueError, ReadOnlyError, UnknownBlockError, require_at_least
from ..swapping import free_landed, move
from ..table import Table, common_prefix
from .block_pool import BlockPool
from .naive import BlockAllocator, NaiveBlock, NaiveBlockAllocator, chain_of
from .prefix_caching import PrefixCachingBlock, PrefixCachingBlockAllocator


class NullBlock:
    """The block that stands for blocks outside the sliding window; it refuses every change with ReadOnlyError."""

    def __init__(self, block_id: int, block_size: int) -> None:
        self._block_id, self._block_size = block_id, block_size
        self.pool_id: int | None = None

    def append_token_ids(self, token_ids: Sequence[int]) -> None:
        """Raises ReadOnlyError."""
        raise ReadOnlyError("the null block")

    @property
    def block_id(self) -> int:
        """Its id, a GPU block that is never freed."""
        return self._block_id

    @block_id.setter
    def block_id(self, value: int | None) -> None:
        raise ReadOnlyError("the null block")

    token_ids: tuple[int, ...] = ()
    num_tokens_total = 0
    prev_block = None
    extra_hash = None
    content_hash = None
    is_full = True
    num_empty_slots = 0
    computed = False
    last_accessed = -1.0

    @property
    def block_size(self) -> int:
        return self._block_size


class CpuGpuBlockAllocator(BlockAllocator):
    """The allocators of both devices with one interface; `create` makes one."""

    @staticmethod
    def create(allocator_type: str, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int) -> CpuGpuBlockAllocator:
        """Return an allocator; `allocator_type` is "naive" or "prefix_caching". Raises InvalidValueError."""
        return CpuGpuBlockAllocator(allocator_type, num_gpu_blocks, num_cpu_blocks, block_size)

    def __init__(self, allocator_type: str, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int) -> None:
        if allocator_type not in ("naive", "prefix_caching"):
            raise InvalidValueError("allocator_type", allocator_type, 'it must be "naive" or "prefix_caching"')
        require_at_least("num_gpu_blocks", num_gpu_blocks, 0)
        require_at_least("num_cpu_blocks", num_cpu_blocks, 0)
        require_at_least("block_size", block_size, 1)
        num_blocks = num_gpu_blocks + num_cpu_blocks
        refcounts, computed = [0] * num_blocks, bytearray(num_blocks)
        is_cached = allocator_type == "prefix_caching"
        self.block_size = block_size
        block_class: Any = PrefixCachingBlock if is_cached else NaiveBlock
        pool: BlockPool[Any] = BlockPool(block_size, block_class, self, 4 * num_blocks)
        self._pool = pool
        self._allocators: dict[Device, NaiveBlockAllocator] = {}
        for device, ids in ((Device.GPU, range(num_gpu_blocks)), (Device.CPU, range(num_gpu_blocks, num_blocks))):
            if is_cached:
                cached = CachedBlocks(device.name, ids, refcounts, computed, block_size)
                self._allocators[device] = PrefixCachingBlockAllocator(
                    len(ids), block_size, block_pool=pool, _blocks=cached
                )
            else:
                plain = DeviceBlocks(device.name, ids, refcounts)
                self._allocators[device] = NaiveBlockAllocator(
                    NaiveBlock, len(ids), block_size, block_pool=pool, _blocks=plain
                )
        self._null_block: NullBlock | None = None
        self._swaps: list[tuple[int, int]] = []
        self._landed: set[int] = set()  # targets of this step's swaps; see `swap`

    def _of(self, device: Device | None) -> NaiveBlockAllocator:
        if device is None or device not in self._allocators:
            raise InvalidValueError("device", device, "it must be Device.GPU or Device.CPU")
        return self._allocators[device]

    def _at(self, block_id: int | None) -> NaiveBlockAllocator:
        for allocator in self._allocators.values():
            if block_id is not None and block_id in allocator.blocks.ids:
                return allocator
        raise UnknownBlockError(block_id, "either device")

    # ---- taking and giving back ----

    def allocate_or_get_null_block(self) -> NullBlock:
        """Return the null block, always the same one. The first call takes a GPU block; raises NoFreeBlocksError."""
        if self._null_block is None:
            self._null_block = NullBlock(self._allocators[Device.GPU].blocks.null_block(), self.block_size)
        return self._null_block

    def allocate_mutable_block(self, prev_block: Any, device: Device, extra_hash: Hashable = None) -> Any:
        """Take a block without tokens on `device`. Raises NoFreeBlocksError."""
        return self._of(device).allocate_mutable_block(prev_block, extra_hash)

    def allocate_immutable_block(
        self, prev_block: Any, token_ids: Sequence[int], device: Device, extra_hash: Hashable = None
    ) -> Any:
        """Take a block with tokens on `device`. Raises NoFreeBlocksError."""
        return self._of(device).allocate_immutable_block(prev_block, token_ids, extra_hash)

    def allocate_immutable_blocks(
        self, prev_block: Any, block_token_ids: Sequence[Sequence[int]], device: Device, extra_hash: Hashable = None
    ) -> list[Any]:
        """Take a chain of blocks with tokens on `device`. Raises NoFreeBlocksError; then nothing has changed."""
        return self._of(device).allocate_immutable_blocks(prev_block, block_token_ids, extra_hash)

    def free(self, block: Any, keep_block_object: bool = False) -> None:
        """Release a reference; does nothing for the null block. Raises UnknownBlockError and DoubleFreeError."""
        if not isinstance(block, NullBlock):
            self._at(block.block_id).free(block, keep_block_object)

    def free_block_id(self, block: Any) -> None:
        """Release a reference and keep the object."""
        self.free(block, keep_block_object=True)

    def fork(self, last_block: Any) -> list[Any]:
        """Add a reference to each block of a chain on one device; returns new objects, none for null blocks."""
        chain = chain_of(last_block)
        held = [block for block in chain if not isinstance(block, NullBlock)]
        return self._at(held[-1].block_id).fork(last_block) if held else []

    # ---- writing ----

    def cow_block_if_not_appendable(self, block: Any) -> int | None:
        """Return the id to write to, on the device of the block. Raises NoFreeBlocksError."""
        return self._at(block.block_id).cow_block_if_not_appendable(block)

    def promote_to_immutable_block(self, block: Any) -> int:
        """Register or exchange a block that became full, on its device; returns its id."""
        return self._at(block.block_id).promote_to_immutable_block(block)

    def clear_copy_on_writes(self) -> list[tuple[int, int]]:
        """Return and forget the copies (source id, target id) to make on the GPU."""
        return self._allocators[Device.GPU].clear_copy_on_writes()

    # ---- moving ----

    def swap(self, blocks: Sequence[Any], src_device: Device, dst_device: Device) -> dict[int, int]:
        """Move blocks to the other device; returns absolute source id -> absolute target id, each id once.

        A worker may execute the swaps of one step in any order, so no two of them land on the same block, even if it
        was freed in between. A step ends with `get_and_reset_swaps` or `mark_blocks_as_computed`.
        Raises NoFreeBlocksError and changes nothing if `dst_device` has too few blocks.
        """
        source, target = self._of(src_device), self._of(dst_device)
        moving = [block for block in blocks if not isinstance(block, NullBlock)]
        ids = [source.blocks.require_held(block.block_id) for block in moving]
        mapping = move([Table(ids, 0)], source.blocks, target.blocks, self._landed.intersection(target.blocks.ids))
        for block in moving:
            block.block_id = mapping[block.block_id]
        if isinstance(source, PrefixCachingBlockAllocator) and isinstance(target, PrefixCachingBlockAllocator):
            for block, source_id in zip(moving, ids, strict=True):
                target.receive(block, source.blocks.last_accessed[source_id])
            source.send(mapping)
        self._swaps.extend(mapping.items())
        self._landed.update(mapping.values())
        return mapping

    def num_held_back_blocks(self, device: Device) -> int:
        """Free blocks of `device` on which no further swap of this step may land; see `swap`."""
        blocks = self._of(device).blocks
        return len(free_landed(blocks, self._landed.intersection(blocks.ids)))

    def get_and_reset_swaps(self) -> list[tuple[int, int]]:
        """Return and forget the pairs of all swaps since the last call, numbered per device. Call it once per step."""
        swaps, self._swaps = self._swaps, []
        self._landed.clear()
        return [
            (self._at(source).get_physical_block_id(source), self._at(target).get_physical_block_id(target))
            for source, target in swaps
        ]

    def get_num_full_blocks_touched(self, blocks: Sequence[Any], device: Device) -> int:
        """Number of full blocks that moving these to `device` takes."""
        moving = [block for block in blocks if not isinstance(block, NullBlock)]
        return self._of(device).get_num_full_blocks_touched(moving)

    # ---- looking ----

    @property
    def has_null_block(self) -> bool:
        return self._null_block is not None

    def get_refcount(self, block_id: int) -> int:
        return self._at(block_id).refcounter.get(block_id)

    def get_num_free_blocks(self, device: Device) -> int:
        """Number of blocks that can be taken on `device`."""
        return self._of(device).get_num_free_blocks()

    def get_num_total_blocks(self, device: Device) -> int:
        return self._of(device).get_num_total_blocks()

    def get_physical_block_id(self, device: Device, absolute_id: int) -> int:
        """Position of an id on `device`, counted from 0. Raises UnknownBlockError."""
        return self._of(device).get_physical_block_id(absolute_id)

    @property
    def all_block_ids(self) -> frozenset[int]:
        """The ids of all blocks of both devices."""
        return frozenset().union(*(allocator.all_block_ids for allocator in self._allocators.values()))

    def mark_blocks_as_accessed(self, block_ids: Sequence[int], now: float) -> None:
        """Record an access of GPU blocks, which decides the order of eviction."""
        self._allocators[Device.GPU].mark_blocks_as_accessed(block_ids, now)

    def mark_blocks_as_computed(self, block_ids: Sequence[int]) -> None:
        """Mark touched GPU blocks as computed: those named, or all of them if none is named. This ends the step."""
        self._landed.clear()
        self._allocators[Device.GPU].mark_blocks_as_computed(block_ids)

    def get_common_computed_block_ids(self, computed_seq_block_ids: Sequence[Sequence[int]]) -> list[int]:
        """Return the longest common prefix of the lists that are not empty."""
        return common_prefix([ids for ids in computed_seq_block_ids if ids])

    def find_cached_blocks_prefix(self, block_hashes: Sequence[Hashable], device: Device = Device.GPU) -> list[Any]:
        """Return the longest prefix of these hashes whose blocks are cached and computed on `device`."""
        return self._of(device).find_cached_blocks_prefix(block_hashes)

    def get_prefix_cache_hit_rate(self, device: Device) -> float:
        """Hits per query of the cache of `device`; -1 without a cache."""
        return self._of(device).get_prefix_cache_hit_rate()

    def reset_prefix_cache(self, device: Device | None = None) -> bool:
        """Empty the cache of one device, or of both; returns False, and does nothing, while a block there is in use."""
        chosen = list(self._allocators.values()) if device is None else [self._of(device)]
        if not all(allocator.blocks.is_idle for allocator in chosen):
            return False
        for allocator in chosen:
            allocator.reset_prefix_cache()
        return True

    @property
    def refcounts(self) -> list[int]:
        """The references held on each block of both devices, by absolute id. It is the live list: read only."""
        return self._allocators[Device.GPU].blocks.refcounts

    def free_ids(self) -> list[int]:
        """Ids that can be taken: for each device those that hold nothing, then those that would be evicted."""
        return [block_id for allocator in self._allocators.values() for block_id in allocator.blocks.all_free_ids()]

    @property
    def refcounters(self) -> Mapping[Device, Any]:
        """A read-only view of the refcounts, for each device."""
        return {device: allocator.refcounter.as_readonly() for device, allocator in self._allocators.items()}
