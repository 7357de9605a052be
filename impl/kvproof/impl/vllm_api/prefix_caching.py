"""Block objects with a prefix cache: handles on one device's `CachedBlocks`.

A block that becomes full is *promoted*: from then on it is found under its content, and it is *touched*, which means
that the step under way computes it. `mark_blocks_as_computed` makes touched blocks computed, and only a computed block
is a hit. A touched block that loses its last reference before that is still found until it is evicted, but it is a hit
only after somebody has taken it again and computed it.

A block that becomes full while a computed block holds the same content is *exchanged*: it gives up its id for that of
the computed block. A worker executes the swap-ins of a step before its copies, so a block that is the source or the
target of a copy must not become free in the same step: a swap-in or another copy could land on it. Two rules see to it:

- The exchange comes before the copy on write. A shared block that is exchanged needs no copy, so the target of a copy
  is never exchanged.
- The last holder of a block that was the source of a copy keeps it.

The content hash of a block is an object that exists once for each content: `hash_block_tokens` returns the same object
for equal arguments as long as somebody has it. So equality is identity, there are no collisions, and two chains of any
length are compared in one step.

Source: vLLM 0.9, vllm/core/block/prefix_caching_block.py; the two rules are ours (vLLM exchanges after the copy).
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ..cached_blocks import CachedBlocks
from ..content import NO_BLOCK, Content
from ..device_blocks import Device, DeviceBlocks
from ..errors import InvalidValueError
from ..evictor import LRUEvictor
from ..table import common_prefix
from .block_pool import BlockPool
from .naive import NaiveBlock, NaiveBlockAllocator


class EvictionPolicy(enum.Enum):
    """Which unreferenced cached block is evicted first."""

    LRU = enum.auto()


class BlockTracker(NamedTuple):
    """The state of one block id."""

    active: bool  # it has references
    last_accessed: float
    computed: bool


class ContentHash:
    """One content: whether it is the first block, the hash before it, its tokens, and what else its KV depends on."""

    __slots__ = ("__weakref__", "depth", "key")

    def __init__(self, key: Hashable, depth: int) -> None:
        self.key = key
        self.depth = depth  # in blocks, this one included


# The hash of a block that has none: None in our blocks, hash("None") in blocks that are written against V0.
UNDEFINED_HASHES = (None, hash("None"))

_CONTENT_HASHES: WeakValueDictionary[Hashable, ContentHash] = WeakValueDictionary()


class PrefixCachingBlock(NaiveBlock):
    """A block that is promoted, or exchanged, when it becomes full."""

    def __init__(
        self,
        prev_block: PrefixCachingBlock | None,
        token_ids: Sequence[int],
        block_size: int,
        allocator: Any,
        block_id: int | None = None,
        computed: bool = False,
        extra_hash: Hashable = None,
    ) -> None:
        super().__init__(prev_block, token_ids, block_size, allocator, block_id, extra_hash=extra_hash)
        self._computed = computed
        self._last_accessed = -1.0
        self._content_hash: Hashable = None

    def append_token_ids(self, token_ids: Sequence[int]) -> None:
        """Append tokens; a block that has an id and becomes full is exchanged or promoted, which may change the id.

        Raises InvalidValueError and NoFreeBlocksError as `NaiveBlock.append_token_ids` does.
        """
        try:
            super().append_token_ids(token_ids)
        except Exception:
            self._content_hash = None  # the tokens were taken back
            raise
        if token_ids and self._block_id is not None and self.content_hash is not None:
            self._block_id = self._allocator.promote_to_immutable_block(self)

    @property
    def computed(self) -> bool:
        """Whether its KV was already computed when it was allocated."""
        return self._computed

    @computed.setter
    def computed(self, value: bool) -> None:
        self._computed = value

    @property
    def last_accessed(self) -> float:
        """Time of the last access, -1 before the first."""
        return self._last_accessed

    @last_accessed.setter
    def last_accessed(self, value: float) -> None:
        self._last_accessed = value

    @property
    def content_hash(self) -> Hashable:
        """The content hash; None while the block is not full or the block before it has none."""
        if self._content_hash is not None:
            return self._content_hash
        block: Any = self
        unnamed = []
        while type(block) is type(self) and block._content_hash is None:
            if not block.is_full or block.num_forgotten_tokens:
                return None
            unnamed.append(block)
            block = block.prev_block
        is_first, before = block is None, None if block is None else block.content_hash
        if before in UNDEFINED_HASHES and not is_first:
            return None
        for block in reversed(unnamed):
            before = block._content_hash = self.hash_block_tokens(is_first, before, block.token_ids, block.extra_hash)
            is_first = False
        return self._content_hash

    @staticmethod
    def hash_block_tokens(
        is_first_block: bool, prev_block_hash: Hashable, cur_block_token_ids: Sequence[int], extra_hash: Hashable = None
    ) -> ContentHash:
        """Return the content hash of a full block: the same object for equal arguments."""
        key = (is_first_block, prev_block_hash, tuple(cur_block_token_ids), extra_hash)
        known = _CONTENT_HASHES.get(key)
        if known is None:
            known = _CONTENT_HASHES[key] = ContentHash(key, 1 + getattr(prev_block_hash, "depth", 0))
        return known


class PrefixCachingBlockAllocator(NaiveBlockAllocator):
    """Allocates block objects of one device; full blocks of equal content share one id."""

    blocks: CachedBlocks

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        block_ids: Iterable[int] | None = None,
        eviction_policy: EvictionPolicy = EvictionPolicy.LRU,
        block_pool: BlockPool[Any] | None = None,
        _blocks: CachedBlocks | None = None,
    ) -> None:
        if eviction_policy is not EvictionPolicy.LRU:
            raise InvalidValueError("eviction_policy", eviction_policy, "it must be EvictionPolicy.LRU")
        super().__init__(PrefixCachingBlock, num_blocks, block_size, block_ids, block_pool, _blocks)
        self._touched: dict[int, Hashable] = {}  # block id -> content hash

    def _make_blocks(self, ids: Sequence[int], block_size: int) -> DeviceBlocks:
        size = max(ids, default=-1) + 1
        return CachedBlocks("the allocator", ids, [0] * size, bytearray(size), block_size)

    def allocate_immutable_block(
        self, prev_block: Any, token_ids: Sequence[int], extra_hash: Hashable = None, device: Device | None = None
    ) -> Any:
        """Take a full block: the cached one of this content if there is one, else a new one, which is promoted.

        Raises InvalidValueError unless there are `block_size` tokens, and NoFreeBlocksError.
        """
        if len(token_ids) != self._block_size:
            raise InvalidValueError("number of tokens", len(token_ids), f"a full block has {self._block_size} tokens")
        block = self._block_pool.init_block(prev_block, list(token_ids), self._block_size, None, extra_hash)
        content = self._find(block.content_hash)
        cached = NO_BLOCK if content is None else content.block_id
        self.blocks.metric.query(cached != NO_BLOCK)
        if cached != NO_BLOCK:
            self.blocks.pin(cached)
            block.block_id = cached
            block.computed = bool(self.blocks.computed[cached])
            if not block.computed:
                self._touched[cached] = block.content_hash
            return block
        try:
            block.block_id = self.blocks.take(1)[0]
        except Exception:
            self._block_pool.free_block(block)
            raise
        if block.content_hash is not None:
            block.block_id = self.promote_to_immutable_block(block)
        return block

    def cow_block_if_not_appendable(self, block: Any) -> int | None:
        """Return the id to write to: that of the computed block of equal content, the block's own, or a new one."""
        source: int | None = block.block_id
        twin = self._exchange(block)
        if twin is not None:
            return twin
        target = super().cow_block_if_not_appendable(block)
        if source is not None and target != source:
            self.blocks.was_copied[source] = 1
        return target

    def _exchange(self, block: Any) -> int | None:
        """Give up the id of a full block for that of a computed block of equal content, if there is one."""
        block_id, content = block.block_id, self._find(block.content_hash)
        twin = NO_BLOCK if content is None else content.block_id
        if block_id is None or twin in (NO_BLOCK, block_id) or not self.blocks.computed[twin]:
            return None
        if self.blocks.was_copied[block_id] and self.blocks.refcounts[block_id] == 1:
            return None
        self.blocks.pin(twin)
        self.blocks.release((block_id,))
        return twin

    def promote_to_immutable_block(self, block: Any) -> int:
        """Register a block that became full under its content, or exchange it for a computed block of that content.

        Returns the id that the block has from now on. Raises InvalidValueError if the block has no content hash.
        """
        block_id = self.blocks.require_held(block.block_id)
        if block.content_hash is None:
            raise InvalidValueError("block", block_id, "only a full block after full blocks can be promoted")
        twin = self._exchange(block)
        if twin is not None:
            return twin
        self.blocks.register(block_id, self._content(block.content_hash))
        if not self.blocks.computed[block_id]:
            self._touched[block_id] = block.content_hash
        return block_id

    def _content(self, content_hash: Any) -> Content:
        content = self.blocks.contents.intern((None, (), content_hash, None))
        content.depth = content_hash.depth
        return content

    def _find(self, content_hash: Hashable) -> Content | None:
        return None if content_hash is None else self.blocks.contents.find((None, (), content_hash, None))

    def mark_blocks_as_computed(self, block_ids: Sequence[int]) -> None:
        """Mark touched blocks as computed: those that are named, or all of them if none is named."""
        for block_id in block_ids or list(self._touched):
            content_hash = self._touched.pop(block_id, None)
            if content_hash is not None and self.blocks.refcounts[block_id]:
                self.blocks.mark_computed(block_id, self._content(content_hash))

    def free_block_id(self, block: Any) -> None:
        block_id = block.block_id
        is_last = block_id in self._touched and self.blocks.refcounts[block_id] == 1
        if is_last:
            del self._touched[block_id]
        content = self.blocks.content_of[block_id] if is_last else None
        if content is None:
            super().free_block_id(block)
        else:
            blocks = self.blocks
            blocks.refcounts[block_id] = 0
            blocks.evictor.add(block_id, content, content.depth * blocks.block_size, blocks.last_accessed[block_id])
            block.block_id = None

    def mark_blocks_as_accessed(self, block_ids: Sequence[int], now: float) -> None:
        """Record an access, which decides the order of eviction. Raises UnknownBlockError for ids of other devices."""
        for block_id in block_ids:
            self.get_physical_block_id(block_id)
        self.blocks.record_access(block_ids, now)
        for block_id in block_ids:
            if block_id in self.blocks.evictor:
                self.blocks.evictor.update(block_id, self.blocks.last_accessed[block_id])

    def is_block_cached(self, block: Any) -> bool:
        content = self._find(block.content_hash)
        return content is not None and content.block_id != NO_BLOCK

    def block_is_computed(self, block_id: int) -> bool:
        """Whether the KV of the block is computed. Raises UnknownBlockError for an id of another device."""
        self.get_physical_block_id(block_id)
        return bool(self.blocks.computed[block_id])

    def find_cached_blocks_prefix(self, block_hashes: Sequence[Hashable]) -> list[Any]:
        """Return the longest prefix of these hashes whose blocks are cached and computed."""
        found = []
        for block_hash in block_hashes:
            content = self._find(block_hash)
            if content is None or content.block_id == NO_BLOCK or not self.blocks.computed[content.block_id]:
                break
            found.append(block_hash)
        return found

    def get_common_computed_block_ids(self, computed_seq_block_ids: Sequence[Sequence[int]]) -> list[int]:
        """Return the longest common prefix of the lists that are not empty."""
        return common_prefix([ids for ids in computed_seq_block_ids if ids])

    def get_prefix_cache_hit_rate(self) -> float:
        """Hits per query, 0 to 1."""
        return self.blocks.metric.get_hit_rate()

    def reset_prefix_cache(self) -> bool:
        """Empty the cache; returns False, and does nothing, while any block is in use."""
        if not self.blocks.is_idle:
            return False
        self.blocks.forget_all()
        self._touched.clear()
        return True

    # ---- read-only views for programs and tests that are written against V0 ----

    @property
    def evictor(self) -> LRUEvictor:
        """The unreferenced cached blocks."""
        return self.blocks.evictor

    @property
    def _cached_blocks(self) -> dict[Hashable, int]:
        contents = enumerate(self.blocks.content_of)
        return {content.key[2]: block_id for block_id, content in contents if content is not None}

    @property
    def _block_tracker(self) -> dict[int, BlockTracker]:
        blocks = self.blocks
        return {
            block_id: BlockTracker(
                blocks.refcounts[block_id] > 0, blocks.last_accessed[block_id], bool(blocks.computed[block_id])
            )
            for block_id in self._order
        }

    @property
    def _hashless_allocator(self) -> NaiveBlockAllocator:
        return self  # one list of free ids serves blocks with content and without

    def receive(self, block: Any, last_accessed: float) -> None:
        """Take over a block that came from another device: its last access and, if it is full, its content."""
        block_id = block.block_id
        self.blocks.last_accessed[block_id] = last_accessed
        if block.content_hash is None:
            return
        content = self._content(block.content_hash)
        if self.blocks.computed[block_id]:
            self.blocks.mark_computed(block_id, content)
        else:
            self.blocks.register(block_id, content)
            self._touched[block_id] = block.content_hash

    def send(self, block_ids: Iterable[int]) -> None:
        """These blocks moved to another device: those that nobody holds here any more are not touched."""
        for block_id in block_ids:
            if not self.blocks.refcounts[block_id]:
                self._touched.pop(block_id, None)
