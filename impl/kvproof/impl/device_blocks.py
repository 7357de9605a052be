"""The blocks of one device: who holds how many references, and which ids are free.

Every other part of the package works on these few fields; there is no second free list and no second
count. `refcounts` is one list over all devices, indexed by block id, so that a table can move between
devices without translating. An id is free exactly when its refcount is 0 and it is in `free_ids` (or,
with a prefix cache, in the evictor).

Ids are taken from the left and given back to the left, as in V0: what was given up last is handed out first. So reuse
within one step is the common case and not a rare one; `block_manager` says why a step's transfers stand it.

The null block stands for blocks that left the sliding window. It is a real block, because a kernel may
read it, taken when first needed, kept for ever, never counted per table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from .errors import DoubleFreeError, NoFreeBlocksError, UnknownBlockError

NO_NULL_BLOCK = -1


class DeviceBlocks:
    """Refcounts and free ids of one device. It trusts its caller; `require_held` is for those who must not."""

    def __init__(self, name: str, block_ids: Sequence[int], refcounts: list[int]) -> None:
        self.name = name
        self.ids: Collection[int] = block_ids if isinstance(block_ids, range) else frozenset(block_ids)
        self.refcounts = refcounts
        self.free_ids: deque[int] = deque(block_ids)
        self.num_total = len(self.free_ids)
        self.null_id = NO_NULL_BLOCK
        self.num_kept = 0  # blocks that stay held when every table has gone, the null block apart

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return len(self.free_ids)

    @property
    def num_usable(self) -> int:
        """Blocks that tables can ever have: all but those kept and, once it is taken, the null block."""
        return self.num_total - self.num_kept - (self.null_id != NO_NULL_BLOCK)

    @property
    def is_idle(self) -> bool:
        """No table holds a block of this device."""
        return self.num_free == self.num_usable

    def all_free_ids(self) -> list[int]:
        """Ids that can be taken now."""
        return list(self.free_ids)

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks without content, each with one reference."""
        if num_blocks > len(self.free_ids):
            raise NoFreeBlocksError(num_blocks, len(self.free_ids), self.name)
        popleft, refcounts = self.free_ids.popleft, self.refcounts
        taken = [popleft() for _ in range(num_blocks)]
        for block_id in taken:
            refcounts[block_id] = 1
        return taken

    def take_one(self) -> int:
        """Take one block without content, with one reference."""
        if not self.free_ids:
            raise NoFreeBlocksError(1, 0, self.name)
        block_id = self.free_ids.popleft()
        self.refcounts[block_id] = 1
        return block_id

    def share(self, block_ids: Iterable[int]) -> None:
        """One more reference to each."""
        refcounts = self.refcounts
        for block_id in block_ids:
            refcounts[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """One reference less to each; a block that nobody holds becomes free."""
        refcounts, free_ids = self.refcounts, self.free_ids
        for block_id in block_ids:
            left = refcounts[block_id] - 1
            refcounts[block_id] = left
            if not left:
                free_ids.appendleft(block_id)

    def null_block(self) -> int:
        """The null block, taken now if it was not yet."""
        if self.null_id == NO_NULL_BLOCK:
            self.null_id = self.take(1)[0]
        return self.null_id

    def require_held(self, block_id: int | None) -> int:
        """Refuse an id that a caller cannot hold: of another device, the null block, or free."""
        if block_id is None or block_id not in self.ids or block_id == self.null_id:
            raise UnknownBlockError(block_id, self.name)
        if not self.refcounts[block_id]:
            raise DoubleFreeError(block_id)
        return block_id
