"""Ready-made block objects, so that handing out a block does not allocate memory.

After a fork several objects name one physical block, so a pool has more objects than there are ids, and it doubles when
it runs out. An object belongs to the pool that made it. A pool refuses objects of other pools, and objects that it has
already: it would hand them out while their owner still uses them.

Source: vLLM 0.9, vllm/core/block/common.py, BlockPool.
"""

from collections import deque
from collections.abc import Hashable
from typing import Any, Generic, Protocol, TypeVar

from ..errors import UnknownBlockError, require_at_least


class PooledBlock(Protocol):
    """The part of a block object that a pool needs."""

    pool_id: int | None


BlockT = TypeVar("BlockT", bound=PooledBlock)
BlockT_co = TypeVar("BlockT_co", covariant=True)


class BlockFactory(Protocol[BlockT_co]):
    """Makes a block object; a block class is one. Calling `__init__` of an object again must set every field."""

    def __call__(
        self,
        prev_block: object,
        token_ids: list[int],
        block_size: int,
        allocator: object,
        block_id: int | None = None,
        extra_hash: Hashable = None,
    ) -> BlockT_co: ...


class BlockPool(Generic[BlockT]):
    """Block objects of one class for one allocator; `pool_size` of them are made at once."""

    def __init__(self, block_size: int, create_block: BlockFactory[BlockT], allocator: object, pool_size: int) -> None:
        require_at_least("block_size", block_size, 1)
        require_at_least("pool_size", pool_size, 0)
        self._block_size, self._create_block, self._allocator = block_size, create_block, allocator
        self._pool: list[BlockT] = []
        self._free_ids: deque[int] = deque()
        self._used: set[int] = set()
        self._grow_to(pool_size)

    @property
    def pool_size(self) -> int:
        """Number of objects made so far."""
        return len(self._pool)

    def increase_pool(self) -> None:
        """Double the number of objects."""
        self._grow_to(max(1, 2 * len(self._pool)))

    def init_block(
        self,
        prev_block: object,
        token_ids: list[int],
        block_size: int,
        physical_block_id: int | None,
        extra_hash: Hashable = None,
    ) -> BlockT:
        """Take an object out of the pool and set its fields. Raises UnknownBlockError for another block size."""
        if block_size != self._block_size:
            raise UnknownBlockError(f"of size {block_size}", f"a pool of blocks of size {self._block_size}")
        if not self._free_ids:
            self.increase_pool()
        pool_id = self._free_ids[0]
        block = self._pool[pool_id]
        fill: Any = block.__init__  # type: ignore[misc]  # the object is used again, not made again
        fill(prev_block, token_ids, block_size, self._allocator, physical_block_id, extra_hash=extra_hash)
        block.pool_id = self._free_ids.popleft()
        self._used.add(pool_id)
        return block

    def free_block(self, block: BlockT) -> None:
        """Return an object to the pool. Raises UnknownBlockError unless it is one of this pool and in use."""
        pool_id = block.pool_id
        if pool_id is None or pool_id not in self._used or self._pool[pool_id] is not block:
            raise UnknownBlockError(pool_id, "the block objects in use of this pool")
        self._used.remove(pool_id)
        self._free_ids.appendleft(pool_id)

    def _grow_to(self, pool_size: int) -> None:
        first = len(self._pool)
        for pool_id in range(first, pool_size):
            block = self._create_block(None, [], self._block_size, self._allocator, None)
            block.pool_id = pool_id
            self._pool.append(block)
        self._free_ids.extend(range(first, pool_size))
