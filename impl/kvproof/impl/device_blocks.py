"""The blocks of one device: their refcounts, and which ids are free.

Every other part of the package works on these fields; there is no second free list and no second count. `refcounts` is
one list over all devices, indexed by block id, so that a table can move between devices without translation. An id is
free exactly when its refcount is 0 and it is in `free_ids` (or, with a prefix cache, in the evictor).

Ids are taken from the left and returned to the left, as in V0: the id that was released last is taken first. So reuse
within one step is common, and `growth` and `swapping` explain why the transfers of a step allow it.

The null block stands for blocks that left the sliding window. It is a real block, because a kernel may read it. It is
taken when it is first needed and never released; tables do not count as its references.
"""

import enum
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from .errors import DoubleFreeError, NoFreeBlocksError, UnknownBlockError


class Device(enum.Enum):
    """GPU memory, which the model reads and writes, or host memory, to which groups are swapped."""

    GPU = enum.auto()
    CPU = enum.auto()


NO_NULL_BLOCK = -1


class DeviceBlocks:
    """Refcounts and free ids of one device. It trusts its caller; `require_held` checks ids that come from outside."""

    def __init__(self, name: str, block_ids: Sequence[int], refcounts: list[int]) -> None:
        self.name = name
        self.ids: Collection[int] = block_ids if isinstance(block_ids, range) else frozenset(block_ids)
        self.refcounts = refcounts
        self.free_ids: deque[int] = deque(block_ids)
        self.num_total = len(self.free_ids)
        self.null_id = NO_NULL_BLOCK
        self.num_kept = 0  # blocks, other than the null block, that stay held when no table is left

    @property
    def num_free(self) -> int:
        """Number of blocks that can be taken now."""
        return len(self.free_ids)

    @property
    def num_usable(self) -> int:
        """Number of blocks that tables can have: all except those kept and, once it is taken, the null block."""
        return self.num_total - self.num_kept - (self.null_id != NO_NULL_BLOCK)

    @property
    def is_idle(self) -> bool:
        """Whether no table holds a block of this device."""
        return self.num_free == self.num_usable

    def all_free_ids(self) -> list[int]:
        """The ids that can be taken now, in the order in which they are taken."""
        return list(self.free_ids)

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks without content, each with one reference. Raises NoFreeBlocksError; then nothing has changed."""
        if num_blocks > len(self.free_ids):
            raise NoFreeBlocksError(num_blocks, len(self.free_ids), self.name)
        popleft, refcounts = self.free_ids.popleft, self.refcounts
        taken = [popleft() for _ in range(num_blocks)]
        for block_id in taken:
            refcounts[block_id] = 1
        return taken

    def take_one(self) -> int:
        """Take one block without content, with one reference. Raises NoFreeBlocksError."""
        if not self.free_ids:
            raise NoFreeBlocksError(1, 0, self.name)
        block_id = self.free_ids.popleft()
        self.refcounts[block_id] = 1
        return block_id

    def share(self, block_ids: Iterable[int]) -> None:
        refcounts = self.refcounts
        for block_id in block_ids:
            refcounts[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Remove a reference from each block; a block without references becomes free."""
        refcounts, free_ids = self.refcounts, self.free_ids
        for block_id in block_ids:
            left = refcounts[block_id] - 1
            refcounts[block_id] = left
            if not left:
                free_ids.appendleft(block_id)

    def null_block(self) -> int:
        """Return the id of the null block; the first call takes it. Raises NoFreeBlocksError."""
        if self.null_id == NO_NULL_BLOCK:
            self.null_id = self.take(1)[0]
        return self.null_id

    def require_held(self, block_id: int | None) -> int:
        """Return `block_id` if a caller can hold it. Raises UnknownBlockError, or DoubleFreeError for a free block."""
        if block_id is None or block_id not in self.ids or block_id == self.null_id:
            raise UnknownBlockError(block_id, self.name)
        if not self.refcounts[block_id]:
            raise DoubleFreeError(block_id)
        return block_id
