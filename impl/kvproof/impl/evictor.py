"""Which unreferenced cached block goes first: the least recently used, among equals the longest prefix.

The rule is one tuple, `(last access, -hashed tokens, block id)`, and the smallest tuple goes. Blocks come
and go far more often than one is evicted (every freed prompt adds all its blocks, every hit takes them
out), so adding appends to a list and removing deletes from a dict; only `evict` moves what has gathered
into the heap. Entries in the heap whose block has left, or was added anew, are recognised because the
dict holds another tuple, and are skipped. The block id as last part makes the order total, hence the
same in every process.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping, Sequence

from .errors import InvalidValueError, UnknownBlockError

STALE_ENTRIES_PER_BLOCK_MAX = 50


# Last access, minus the hashed tokens, block id; a plain tuple, since every block that is freed makes one.
Rank = tuple[float, int, int]


class LRUEvictor:
    """The unreferenced cached blocks of one device."""

    __slots__ = ("_contents", "_heap", "_ranks", "_waiting")

    def __init__(self) -> None:
        self._ranks: dict[int, Rank] = {}
        self._contents: dict[int, Hashable] = {}
        self._heap: list[Rank] = []
        self._waiting: list[Rank] = []

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._ranks

    @property
    def num_blocks(self) -> int:
        """How many blocks can be evicted."""
        return len(self._ranks)

    @property
    def free_table(self) -> Mapping[int, Rank]:
        """The blocks that can be evicted, each with its rank; read only."""
        return self._ranks

    def add(self, block_id: int, content_hash: Hashable, num_hashed_tokens: int, last_accessed: float) -> None:
        """Take in a block that lost its last reference; its content stays findable until it is evicted."""
        rank = (last_accessed, -num_hashed_tokens, block_id)
        self._ranks[block_id] = rank
        self._contents[block_id] = content_hash
        waiting = self._waiting
        waiting.append(rank)
        if len(waiting) + len(self._heap) > STALE_ENTRIES_PER_BLOCK_MAX * len(self._ranks):
            self._rebuild()

    def add_all(self, ranks: list[Rank], contents: Sequence[Hashable]) -> None:
        """The same for many blocks, whose ranks are given."""
        block_ids = [block_id for _, _, block_id in ranks]
        self._ranks.update(zip(block_ids, ranks, strict=True))
        self._contents.update(zip(block_ids, contents, strict=True))
        self._waiting.extend(ranks)
        if len(self._waiting) + len(self._heap) > STALE_ENTRIES_PER_BLOCK_MAX * len(self._ranks):
            self._rebuild()

    def update(self, block_id: int, last_accessed: float) -> None:
        """Record a later access of a block that is here."""
        rank = self._ranks.get(block_id)
        if rank is None:
            raise UnknownBlockError(block_id, "the evictor")
        self.add(block_id, self._contents[block_id], -rank[1], last_accessed)

    def remove(self, block_id: int) -> None:
        """A block that is here is referenced again."""
        if self._ranks.pop(block_id, None) is None:
            raise UnknownBlockError(block_id, "the evictor")
        del self._contents[block_id]

    def evict(self) -> tuple[int, Hashable]:
        """Give up the first block in order; returns its id and its content hash."""
        ranks, heap, waiting = self._ranks, self._heap, self._waiting
        if not ranks:
            raise InvalidValueError("evictable blocks", 0, "evict needs one")
        if len(waiting) * 4 > len(heap):
            heap.extend(waiting)
            heapq.heapify(heap)
        else:
            for rank in waiting:
                heapq.heappush(heap, rank)
        waiting.clear()
        while True:
            rank = heapq.heappop(heap)
            block_id = rank[2]
            if ranks.get(block_id) is rank:
                del ranks[block_id]
                return block_id, self._contents.pop(block_id)

    def in_order(self) -> Iterable[int]:
        """The block ids in the order in which they would be evicted."""
        return [block_id for _, _, block_id in sorted(self._ranks.values())]

    def clear(self) -> None:
        """Forget every block."""
        for part in (self._ranks, self._contents, self._heap, self._waiting):
            part.clear()

    def _rebuild(self) -> None:
        self._waiting.clear()
        self._heap[:] = self._ranks.values()
        heapq.heapify(self._heap)
