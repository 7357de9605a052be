"""Block objects without a prefix cache: handles on ids of one device.

The objects hold tokens and the chain; refcounts and free ids are those of `DeviceBlocks`, the same that the block
manager works on. Appending to a block that others hold takes a new id first, so that an append that
finds no free block has changed nothing. Chains are walked in loops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from ..device import Device
from ..device_blocks import DeviceBlocks
from ..errors import InvalidValueError, NoFreeBlocksError, UnknownBlockError, require_at_least
from .block_pool import BlockPool
from .refcount import CopyOnWriteTracker, RefCounter


class WriteAllocator(Protocol):
    """What a block object asks of its allocator when it is written."""

    def cow_block_if_not_appendable(self, block: Any) -> int | None: ...
    def promote_to_immutable_block(self, block: Any) -> int: ...


class BlockAllocator:
    """Name space of the error that all allocators raise when no block is free."""

    NoFreeBlocksError = NoFreeBlocksError


class NaiveBlock:
    """Some tokens, and the id of the block that holds their KV."""

    def __init__(
        self,
        prev_block: NaiveBlock | None,
        token_ids: Sequence[int],
        block_size: int,
        allocator: WriteAllocator,
        block_id: int | None = None,
        _cow_target: NaiveBlock | None = None,
        extra_hash: Hashable = None,
    ) -> None:
        require_at_least("block_size", block_size, 1)
        if len(token_ids) > block_size:
            raise InvalidValueError("number of tokens", len(token_ids), f"a block has {block_size} slots")
        self._token_ids = list(token_ids)
        self._block_size, self._prev_block, self._allocator = block_size, prev_block, allocator
        self._block_id = block_id
        self._cow_target = _cow_target if _cow_target is not None else self
        self._extra_hash = extra_hash
        self.pool_id: int | None = None
        self.num_forgotten_tokens = 0

    def forget_prefix(self) -> None:
        """The blocks before are gone; only their number of tokens is remembered."""
        before = self._prev_block
        if before is not None:
            self.num_forgotten_tokens = before.num_tokens_total
            self._prev_block = None

    def append_token_ids(self, token_ids: Sequence[int]) -> None:
        """Append up to the room; a shared block gets a new id before it is written."""
        if len(token_ids) > self.num_empty_slots:
            raise InvalidValueError("number of tokens", len(token_ids), f"{self.num_empty_slots} slots are empty")
        if not token_ids:
            return
        self._token_ids.extend(token_ids)
        if self._block_id is not None:
            try:
                self._block_id = self._allocator.cow_block_if_not_appendable(self._cow_target)
            except Exception:
                del self._token_ids[-len(token_ids) :]
                raise

    @property
    def token_ids(self) -> list[int]:
        """The tokens."""
        return self._token_ids

    @property
    def block_id(self) -> int | None:
        """The block that holds their KV."""
        return self._block_id

    @block_id.setter
    def block_id(self, value: int | None) -> None:
        self._block_id = value

    @property
    def block_size(self) -> int:
        """Slots."""
        return self._block_size

    @property
    def prev_block(self) -> Any:
        """The block before in the sequence."""
        return self._prev_block

    @property
    def num_empty_slots(self) -> int:
        """Room for tokens."""
        return self._block_size - len(self._token_ids)

    @property
    def is_full(self) -> bool:
        """No room left."""
        return len(self._token_ids) == self._block_size

    @property
    def num_tokens_total(self) -> int:
        """Tokens up to and with this block."""
        total, block = 0, self
        while block is not None:
            total += len(block._token_ids) + block.num_forgotten_tokens
            block = block._prev_block  # type: ignore[assignment]
        return total

    @property
    def computed(self) -> bool:
        """Known only with a prefix cache."""
        raise InvalidValueError("computed", None, "it is known only with a prefix cache")

    @property
    def last_accessed(self) -> float:
        """Known only with a prefix cache."""
        raise InvalidValueError("last_accessed", None, "it is known only with a prefix cache")

    @property
    def content_hash(self) -> Hashable:
        """Always None: content is not looked up here."""
        return None

    @property
    def extra_hash(self) -> Hashable:
        """What the KV depends on besides tokens."""
        return self._extra_hash


class NaiveBlockAllocator(BlockAllocator):
    """Hands out block objects of one device."""

    def __init__(
        self,
        create_block: Any,
        num_blocks: int,
        block_size: int,
        block_ids: Iterable[int] | None = None,
        block_pool: BlockPool[Any] | None = None,
        _blocks: DeviceBlocks | None = None,
    ) -> None:
        require_at_least("num_blocks", num_blocks, 0)
        require_at_least("block_size", block_size, 1)
        if _blocks is None:
            ids: Sequence[int] = range(num_blocks) if block_ids is None else list(block_ids)
            if len(set(ids)) != num_blocks or any(block_id < 0 for block_id in ids):
                raise InvalidValueError("block_ids", list(ids)[:8], f"{num_blocks} distinct ids from 0 are needed")
            _blocks = self._make_blocks(ids, block_size)
        self.blocks = _blocks
        self._block_size = block_size
        self._order = sorted(_blocks.ids)
        self._place = {block_id: place for place, block_id in enumerate(self._order)}
        self.refcounter = RefCounter(_blocks.ids, _blocks.refcounts)
        self._cow_tracker = CopyOnWriteTracker(self.refcounter.as_readonly())
        self._block_pool = block_pool or BlockPool(block_size, create_block, self, 4 * num_blocks)

    def _make_blocks(self, ids: Sequence[int], block_size: int) -> DeviceBlocks:
        return DeviceBlocks("the allocator", ids, [0] * (max(ids, default=-1) + 1))

    # ---- taking ----

    def allocate_mutable_block(self, prev_block: Any, extra_hash: Hashable = None, device: Device | None = None) -> Any:
        """A block without tokens."""
        block_id = self.blocks.take(1)[0]
        return self._block_pool.init_block(prev_block, [], self._block_size, block_id, extra_hash)

    def allocate_immutable_block(
        self, prev_block: Any, token_ids: Sequence[int], extra_hash: Hashable = None, device: Device | None = None
    ) -> Any:
        """A block with tokens."""
        if len(token_ids) > self._block_size:
            raise InvalidValueError("number of tokens", len(token_ids), f"a block has {self._block_size} slots")
        block = self.allocate_mutable_block(prev_block, extra_hash)
        block.append_token_ids(token_ids)
        return block

    def allocate_immutable_blocks(
        self,
        prev_block: Any,
        block_token_ids: Sequence[Sequence[int]],
        extra_hash: Hashable = None,
        device: Device | None = None,
    ) -> list[Any]:
        """A chain of blocks; all or none."""
        made: list[Any] = []
        try:
            for token_ids in block_token_ids:
                prev_block = self.allocate_immutable_block(prev_block, token_ids, extra_hash)
                made.append(prev_block)
        except Exception:
            for block in reversed(made):
                self.free(block)
            raise
        return made

    def fork(self, last_block: Any) -> list[Any]:
        """New objects for the whole chain, each id held once more; in order from the first."""
        chain = chain_of(last_block)
        for block in chain:
            self.blocks.require_held(block.block_id)
        self.blocks.share([block.block_id for block in chain])
        forked: list[Any] = []
        for block in chain:
            before = forked[-1] if forked else None
            forked.append(
                self._block_pool.init_block(before, block.token_ids, self._block_size, block.block_id, block.extra_hash)
            )
            forked[-1].num_forgotten_tokens = block.num_forgotten_tokens
        return forked

    # ---- giving back ----

    def free(self, block: Any, keep_block_object: bool = False) -> None:
        """Give back the reference and, unless it is kept, the object."""
        self.free_block_id(block)
        if not keep_block_object:
            self._block_pool.free_block(block)

    def free_block_id(self, block: Any) -> None:
        """Give back the reference; the object has no id then."""
        self.blocks.release((self.blocks.require_held(block.block_id),))
        block.block_id = None

    # ---- writing ----

    def cow_block_if_not_appendable(self, block: Any) -> int | None:
        """The id to write to: the block's own, or a new one if others hold it."""
        source: int | None = block.block_id
        if source is None or self._cow_tracker.is_appendable(block):
            return source
        target = self.blocks.take(1)[0]
        self.blocks.release((source,))
        self._cow_tracker.record_cow(source, target)
        return target

    def clear_copy_on_writes(self) -> list[tuple[int, int]]:
        """The copies to make since the last call."""
        return self._cow_tracker.clear_cows()

    def promote_to_immutable_block(self, block: Any) -> int:
        """Not supported: content is not looked up here."""
        raise InvalidValueError("promotion", block.block_id, "it needs a prefix cache")

    # ---- moving ----

    def swap_out(self, blocks: Sequence[Any]) -> None:
        """Give back the ids of blocks that go to another device; the objects stay with their owner."""
        for block in blocks:
            self.blocks.require_held(block.block_id)
        for block in blocks:
            self.free_block_id(block)

    def swap_in(self, blocks: Sequence[Any]) -> None:
        """Give ids to blocks that come from another device; all or none."""
        for block, block_id in zip(blocks, self.blocks.take(len(blocks)), strict=True):
            block.block_id = block_id

    # ---- looking ----

    @property
    def _free_block_indices(self) -> deque[int]:
        return self.blocks.free_ids  # by the name it has in V0

    @property
    def _refcounter(self) -> RefCounter:
        return self.refcounter

    def get_num_free_blocks(self) -> int:
        """Blocks that can be taken."""
        return self.blocks.num_free

    def get_num_total_blocks(self) -> int:
        """All blocks."""
        return self.blocks.num_total

    @property
    def all_block_ids(self) -> frozenset[int]:
        """All ids."""
        return frozenset(self._order)

    def get_physical_block_id(self, absolute_id: int) -> int:
        """Place of an id on its device, from 0."""
        place = self._place.get(absolute_id)
        if place is None:
            raise UnknownBlockError(absolute_id, self.blocks.name)
        return place

    def get_num_full_blocks_touched(self, blocks: Sequence[Any], device: Device | None = None) -> int:
        """Distinct full blocks among these. Those that are not full are counted by the append that follows a swap."""
        return len({block.block_id if block.block_id is not None else id(block) for block in blocks if block.is_full})

    def mark_blocks_as_accessed(self, block_ids: Sequence[int], now: float) -> None:
        """Nothing to do."""

    def mark_blocks_as_computed(self, block_ids: Sequence[int]) -> None:
        """Nothing to do."""

    def get_common_computed_block_ids(self, computed_seq_block_ids: Sequence[Sequence[int]]) -> list[int]:
        """Nothing is known to be computed."""
        return []

    def find_cached_blocks_prefix(self, block_hashes: Sequence[Hashable]) -> list[int]:
        """Nothing is cached."""
        return []

    def get_prefix_cache_hit_rate(self) -> float:
        """There is no cache."""
        return -1.0

    def reset_prefix_cache(self) -> bool:
        """Nothing to empty."""
        return True


def chain_of(last_block: Any) -> list[Any]:
    """The blocks of a chain, from the first to `last_block`."""
    chain = []
    while last_block is not None:
        chain.append(last_block)
        last_block = last_block.prev_block
    chain.reverse()
    return chain
