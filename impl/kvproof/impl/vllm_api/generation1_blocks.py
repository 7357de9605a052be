"""Physical blocks and allocators of the first generation: handles on `DeviceBlocks`.

A `PhysicalTokenBlock` is a handle of one id without state of its own: it reads refcount, content and times from
`DeviceBlocks`. An allocator always returns the same handle for the same id, so `is` and `==` agree. Block numbers count
from 0 on each device.

The cached allocator finds a block by its name, which callers call a hash. A name is any hashable, and names are
compared with `==`: two contents share a block only if their names are equal, so a name should be the content. The
`computed` flag of a block says whether its KV is computed; it is cleared when the id is taken for another content.

Source: vLLM 0.6, vllm/core/block_manager_v1.py.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from ..cached_blocks import CachedBlocks
from ..content import NO_BLOCK, Content
from ..device_blocks import Device, DeviceBlocks
from ..errors import InvalidValueError, UnknownBlockError, require_at_least
from ..evictor import LRUEvictor
from .prefix_caching import EvictionPolicy

BlocksT = TypeVar("BlocksT", bound=DeviceBlocks)


class Placeholder:
    """The name of a block without content: equal only to itself."""

    __slots__ = ()


class PhysicalTokenBlock:
    """A handle of one block of one device."""

    __slots__ = ("_blocks", "_computed", "_id", "block_number", "block_size", "device")

    def __init__(
        self,
        device: Device,
        block_number: int,
        block_size: int,
        _blocks: DeviceBlocks,
        _id: int,
        _computed: bytearray | None,
    ) -> None:
        self.device, self.block_number, self.block_size = device, block_number, block_size
        self._blocks, self._id, self._computed = _blocks, _id, _computed

    @property
    def ref_count(self) -> int:
        """Number of references to the block; 0 if it is unused."""
        return self._blocks.refcounts[self._id]

    @property
    def _content(self) -> Content | None:
        return self._blocks.content_of[self._id] if isinstance(self._blocks, CachedBlocks) else None

    @property
    def block_hash(self) -> Hashable:
        """The name under which the block is found; None if it is not found."""
        content = self._content
        if content is None:
            return None
        before, tokens, name, _ = content.key
        return name if before is None and not tokens else content

    @property
    def num_hashed_tokens(self) -> int:
        """Number of tokens up to and including this block that its name covers."""
        content = self._content
        return 0 if content is None else content.depth * self._blocks.block_size  # type: ignore[attr-defined]

    @property
    def last_accessed(self) -> float:
        """Time of the last access, -1 if none was recorded."""
        return self._blocks.last_accessed[self._id] if isinstance(self._blocks, CachedBlocks) else -1.0

    @last_accessed.setter
    def last_accessed(self, now: float) -> None:
        blocks = self._blocks
        if isinstance(blocks, CachedBlocks):
            blocks.last_accessed[self._id] = now
            if self._id in blocks.evictor:
                blocks.evictor.update(self._id, now)

    @property
    def computed(self) -> bool:
        """Whether every slot holds the KV of the content. Only a prefix cache lets callers set it."""
        return self._computed is not None and bool(self._computed[self._id])

    @computed.setter
    def computed(self, value: bool) -> None:
        if self._computed is None:
            raise InvalidValueError("computed", value, "it is known only with a prefix cache")
        self._computed[self._id] = value

    def __repr__(self) -> str:
        return (
            f"PhysicalTokenBlock(device={self.device.name}, block_number={self.block_number}, "
            f"ref_count={self.ref_count}, num_hashed_tokens={self.num_hashed_tokens}, "
            f"last_accessed={self.last_accessed}, computed={self.computed})"
        )


class _Allocator(Generic[BlocksT]):
    """Base of both allocators: handles and counts."""

    def __init__(
        self, device: Device, block_size: int, num_blocks: int, blocks: BlocksT, first: int, computed: bytearray | None
    ) -> None:
        self.device, self.block_size, self.num_blocks = device, block_size, num_blocks
        self.blocks = blocks
        self._first = first
        self._handles = [
            PhysicalTokenBlock(device, number, block_size, blocks, first + number, computed)
            for number in range(num_blocks)
        ]

    def block(self, block_id: int) -> PhysicalTokenBlock:
        """Return the handle of an id that is counted over both devices."""
        return self._handles[block_id - self._first]

    def free(self, block: PhysicalTokenBlock) -> None:
        """Release one reference. Raises DoubleFreeError if there is none, UnknownBlockError for a foreign block."""
        self.blocks.release((self._held(block),))

    def get_num_free_blocks(self) -> int:
        """Number of blocks that can be allocated."""
        return self.blocks.num_free

    def get_num_total_blocks(self) -> int:
        return self.num_blocks

    def _held(self, block: PhysicalTokenBlock) -> int:
        number = block.block_number
        if not 0 <= number < self.num_blocks or self._handles[number] is not block:
            raise UnknownBlockError(number, f"this allocator of {self.device.name} blocks")
        return self.blocks.require_held(self._first + number)


class UncachedBlockAllocator(_Allocator[DeviceBlocks]):
    """A stack of free blocks. It finds no block by content, and ignores names."""

    def __init__(
        self,
        device: Device,
        block_size: int,
        num_blocks: int,
        _blocks: DeviceBlocks | None = None,
        _first: int = 0,
    ) -> None:
        require_at_least("block_size", block_size, 1)
        require_at_least("num_blocks", num_blocks, 0)
        blocks = DeviceBlocks(device.name, range(num_blocks), [0] * num_blocks) if _blocks is None else _blocks
        super().__init__(device, block_size, num_blocks, blocks, _first, None)

    @property
    def free_blocks(self) -> list[PhysicalTokenBlock]:
        """The free blocks; the last one is taken first."""
        return [self.block(block_id) for block_id in reversed(self.blocks.free_ids)]

    def allocate(self, block_hash: Hashable = None, num_hashed_tokens: int = 0) -> PhysicalTokenBlock:
        """Take a block, with one reference. Raises NoFreeBlocksError."""
        return self.block(self.blocks.take(1)[0])

    def contains_block(self, block_hash: Hashable) -> bool:
        """Raises InvalidValueError: it needs a prefix cache."""
        raise InvalidValueError("block_hash", block_hash, "it needs a prefix cache")

    def update_hash(self, block_hash: Hashable, block: PhysicalTokenBlock) -> None:
        """Raises InvalidValueError: it needs a prefix cache."""
        raise InvalidValueError("block_hash", block_hash, "it needs a prefix cache")


class CachedBlockAllocator(_Allocator[CachedBlocks]):
    """Finds blocks by name, in use or evictable. Ids that hold nothing are taken before a block is evicted."""

    def __init__(
        self,
        device: Device,
        block_size: int,
        num_blocks: int,
        eviction_policy: EvictionPolicy = EvictionPolicy.LRU,
        _blocks: CachedBlocks | None = None,
        _first: int = 0,
    ) -> None:
        require_at_least("block_size", block_size, 1)
        require_at_least("num_blocks", num_blocks, 0)
        if eviction_policy is not EvictionPolicy.LRU:
            raise InvalidValueError("eviction_policy", eviction_policy, "it must be EvictionPolicy.LRU")
        if _blocks is None:
            # Depths count tokens, so the core has blocks of size 1. A named block becomes evictable even if it is not
            # computed, so the flag that callers see differs from that of the core, which means "can be found later".
            keeps = bytearray(num_blocks)
            blocks = CachedBlocks(device.name, range(num_blocks), [0] * num_blocks, keeps, 1)
            self._computed = bytearray(num_blocks)
        else:
            blocks, self._computed = _blocks, _blocks.computed
        super().__init__(device, block_size, num_blocks, blocks, _first, self._computed)

    @property
    def evictor(self) -> LRUEvictor:
        """The blocks without references that can still be found."""
        return self.blocks.evictor

    def allocate(self, block_hash: Hashable = None, num_hashed_tokens: int = 0) -> PhysicalTokenBlock:
        """Take the block of that name, or a new one for it; without a name, a block that is never found.

        Raises NoFreeBlocksError.
        """
        require_at_least("num_hashed_tokens", num_hashed_tokens, 0)
        found = self._find(block_hash)
        if found != NO_BLOCK:
            self.blocks.pin(found)
            return self.block(found)
        block_id = self.blocks.take(1)[0]
        self._name(block_id, Placeholder() if block_hash is None else block_hash, num_hashed_tokens)
        self.blocks.computed[block_id] = block_hash is not None
        self._computed[block_id] = 0
        return self.block(block_id)

    def contains_block(self, block_hash: Hashable) -> bool:
        """Whether a block of that name is in use or evictable."""
        return self._find(block_hash) != NO_BLOCK

    def update_hash(self, block_hash: Hashable, block: PhysicalTokenBlock) -> None:
        """Give the block another name. Raises InvalidValueError if another block has it."""
        block_id = self._held(block)
        if block_hash is None or self.contains_block(block_hash):
            raise InvalidValueError("block_hash", block_hash, "it must be a name that no other block has")
        num_hashed_tokens, was_computed = block.num_hashed_tokens, self._computed[block_id]
        self.blocks.forget(block_id)
        self._name(block_id, block_hash, num_hashed_tokens)
        self.blocks.computed[block_id] = 1
        self._computed[block_id] = was_computed

    def _find(self, block_hash: Hashable) -> int:
        content = None if block_hash is None else self.blocks.contents.find((None, (), block_hash, None))
        return NO_BLOCK if content is None else content.block_id

    def _name(self, block_id: int, block_hash: Hashable, num_hashed_tokens: int) -> None:
        content = self.blocks.contents.intern((None, (), block_hash, None))
        content.depth = -(-num_hashed_tokens // self.blocks.block_size)
        self.blocks.register(block_id, content)
