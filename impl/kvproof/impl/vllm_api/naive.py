"""Block objects without a prefix cache: handles on the block ids of one device.

An object holds the tokens of its block and a link to the block before it. Refcounts and free ids are those of
`DeviceBlocks`, on which the block manager works too. An append to a block that others hold as well takes a new id
first, so that an append that finds no free block changes nothing. Chains are walked in loops, not by recursion.

Source: vLLM 0.9, vllm/core/block/naive_block.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from ..device_blocks import Device, DeviceBlocks
from ..errors import InvalidValueError, NoFreeBlocksError, UnknownBlockError, require_at_least
from .block_pool import BlockPool
from .refcount import CopyOnWriteTracker, RefCounter


class WriteAllocator(Protocol):
    """The calls that a block object makes to its allocator when it is written."""

    def cow_block_if_not_appendable(self, block: Any) -> int | None: ...
    def promote_to_immutable_block(self, block: Any) -> int: ...


class BlockAllocator:
    """Base of the allocators; it names the error that they raise when no block is free."""

    NoFreeBlocksError = NoFreeBlocksError


class NaiveBlock:
    """Tokens of a sequence, and the id of the block that holds their KV.

    `token_ids` has at most `block_size` tokens; the constructor raises InvalidValueError otherwise.
    """

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
        """Drop the link to the blocks before this one, and keep only the number of their tokens."""
        before = self._prev_block
        if before is not None:
            self.num_forgotten_tokens = before.num_tokens_total
            self._prev_block = None

    def append_token_ids(self, token_ids: Sequence[int]) -> None:
        """Append tokens; a block that others hold too gets a new id first.

        Raises InvalidValueError if there are more tokens than empty slots, and NoFreeBlocksError if no block is free
        for a copy. In both cases nothing has changed.
        """
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
        """The tokens of the block. It is the live list: read only."""
        return self._token_ids

    @property
    def block_id(self) -> int | None:
        """Id of the block that holds their KV; None while the block has none."""
        return self._block_id

    @block_id.setter
    def block_id(self, value: int | None) -> None:
        self._block_id = value

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def prev_block(self) -> Any:
        """The block before this one in the sequence; None for the first."""
        return self._prev_block

    @property
    def num_empty_slots(self) -> int:
        return self._block_size - len(self._token_ids)

    @property
    def is_full(self) -> bool:
        return len(self._token_ids) == self._block_size

    @property
    def num_tokens_total(self) -> int:
        """Number of tokens up to and including this block."""
        total, block = 0, self
        while block is not None:
            total += len(block._token_ids) + block.num_forgotten_tokens
            block = block._prev_block  # type: ignore[assignment]
        return total

    @property
    def computed(self) -> bool:
        """Raises InvalidValueError: it is known only with a prefix cache."""
        raise InvalidValueError("computed", None, "it is known only with a prefix cache")

    @property
    def last_accessed(self) -> float:
        """Raises InvalidValueError: it is known only with a prefix cache."""
        raise InvalidValueError("last_accessed", None, "it is known only with a prefix cache")

    @property
    def content_hash(self) -> Hashable:
        """Always None: this allocator finds no block by content."""
        return None

    @property
    def extra_hash(self) -> Hashable:
        """What the KV depends on in addition to the tokens, such as an adapter."""
        return self._extra_hash


class NaiveBlockAllocator(BlockAllocator):
    """Allocates block objects of one device.

    block_ids: `num_blocks` distinct ids from 0 up; by default 0 to num_blocks - 1. Raises InvalidValueError otherwise.
    """

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
        """Take a block without tokens. Raises NoFreeBlocksError."""
        block_id = self.blocks.take(1)[0]
        return self._block_pool.init_block(prev_block, [], self._block_size, block_id, extra_hash)

    def allocate_immutable_block(
        self, prev_block: Any, token_ids: Sequence[int], extra_hash: Hashable = None, device: Device | None = None
    ) -> Any:
        """Take a block with tokens. Raises NoFreeBlocksError, or InvalidValueError for more tokens than slots."""
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
        """Take a chain of blocks, one for each list of tokens. Raises NoFreeBlocksError; then nothing has changed."""
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
        """Add a reference to every block of a chain; returns new block objects for it, the first block first."""
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
        """Release the reference and, unless `keep_block_object`, return the object to the pool.

        Raises UnknownBlockError for an id of another device, DoubleFreeError for a block without references.
        """
        self.free_block_id(block)
        if not keep_block_object:
            self._block_pool.free_block(block)

    def free_block_id(self, block: Any) -> None:
        """Release the reference; the object keeps its tokens and has no id afterwards."""
        self.blocks.release((self.blocks.require_held(block.block_id),))
        block.block_id = None

    # ---- writing ----

    def cow_block_if_not_appendable(self, block: Any) -> int | None:
        """Return the id to write to: the block's own, or a new one if others hold it, and then record the copy.

        Raises NoFreeBlocksError.
        """
        source: int | None = block.block_id
        if source is None or self._cow_tracker.is_appendable(block):
            return source
        target = self.blocks.take(1)[0]
        self.blocks.release((source,))
        self._cow_tracker.record_cow(source, target)
        return target

    def clear_copy_on_writes(self) -> list[tuple[int, int]]:
        """Return and forget the copies (source id, target id) recorded since the last call."""
        return self._cow_tracker.clear_cows()

    def promote_to_immutable_block(self, block: Any) -> int:
        """Raises InvalidValueError: promotion needs a prefix cache."""
        raise InvalidValueError("promotion", block.block_id, "it needs a prefix cache")

    # ---- moving ----

    def swap_out(self, blocks: Sequence[Any]) -> None:
        """Release the ids of blocks that move to another device; the objects stay with their owner."""
        for block in blocks:
            self.blocks.require_held(block.block_id)
        for block in blocks:
            self.free_block_id(block)

    def swap_in(self, blocks: Sequence[Any]) -> None:
        """Give ids to blocks that come from another device. If that raises NoFreeBlocksError, nothing has changed."""
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
        """Number of blocks that can be taken."""
        return self.blocks.num_free

    def get_num_total_blocks(self) -> int:
        return self.blocks.num_total

    @property
    def all_block_ids(self) -> frozenset[int]:
        """The ids of all blocks of the device."""
        return frozenset(self._order)

    def get_physical_block_id(self, absolute_id: int) -> int:
        """Position of an id on its device, counted from 0. Raises UnknownBlockError."""
        place = self._place.get(absolute_id)
        if place is None:
            raise UnknownBlockError(absolute_id, self.blocks.name)
        return place

    def get_num_full_blocks_touched(self, blocks: Sequence[Any], device: Device | None = None) -> int:
        """Number of distinct full blocks. The append that follows a swap counts the blocks that are not full."""
        return len({block.block_id if block.block_id is not None else id(block) for block in blocks if block.is_full})

    def mark_blocks_as_accessed(self, block_ids: Sequence[int], now: float) -> None:
        """Does nothing: there is no prefix cache."""

    def mark_blocks_as_computed(self, block_ids: Sequence[int]) -> None:
        """Does nothing: there is no prefix cache."""

    def get_common_computed_block_ids(self, computed_seq_block_ids: Sequence[Sequence[int]]) -> list[int]:
        """Returns []: there is no prefix cache."""
        return []

    def find_cached_blocks_prefix(self, block_hashes: Sequence[Hashable]) -> list[int]:
        """Returns []: there is no prefix cache."""
        return []

    def get_prefix_cache_hit_rate(self) -> float:
        """Returns -1: there is no prefix cache."""
        return -1.0

    def reset_prefix_cache(self) -> bool:
        """Returns True: there is no prefix cache to empty."""
        return True


def chain_of(last_block: Any) -> list[Any]:
    """Return the blocks of a chain, from the first to `last_block`."""
    chain = []
    while last_block is not None:
        chain.append(last_block)
        last_block = last_block.prev_block
    chain.reverse()
    return chain
