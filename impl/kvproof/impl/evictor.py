"""The order of eviction: the least recently used block first, and among equals the longest prefix.

The rank of a block is the tuple `(last access, -hashed tokens, block id)`, and the smallest rank is evicted. Blocks are
added and removed far more often than evicted: every freed prompt adds all its blocks, and every hit removes some. So
adding appends to a list, and removing deletes from a dict. The blocks of a freed table are kept as one batch, and get
their ranks before the next call of another kind.

Before an eviction the new ranks are sorted. Time goes on, so nearly all of them follow every rank before them: they go
to the end of a queue, which is in order. The few that do not go to a heap. The first block is the first of the queue or
of the heap. If a block was removed, or removed and added again, the dict has no rank or another rank for it, and its
old rank is skipped. The block id makes the order total, and so the same in every process.

Source: vLLM 0.9, vllm/core/evictor.py, LRUEvictor.
"""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from .errors import InvalidValueError, UnknownBlockError

STALE_RANKS_PER_BLOCK_MAX = 50


# Last access, minus the hashed tokens, block id; a plain tuple, since every freed block makes one.
Rank = tuple[float, int, int]
Describe = Callable[[list[int]], tuple[list[Rank], list[Hashable]]]


class LRUEvictor:
    """The unreferenced cached blocks of one device."""

    __slots__ = ("_batches", "_contents", "_heap", "_num_batched", "_queue", "_ranks", "_waiting")

    def __init__(self) -> None:
        self._ranks: dict[int, Rank] = {}
        self._batches: list[tuple[list[int], Describe]] = []  # blocks that have no rank yet
        self._num_batched = 0
        self._contents: dict[int, Hashable] = {}
        self._queue: deque[Rank] = deque()  # in order
        self._heap: list[Rank] = []  # of those that belong before the end of the queue
        self._waiting: list[Rank] = []  # of those that were added since the last eviction

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._ranked()

    @property
    def num_blocks(self) -> int:
        return len(self._ranks) + self._num_batched

    @property
    def free_table(self) -> Mapping[int, Rank]:
        """The blocks that can be evicted, each with its rank; read only."""
        return self._ranked()

    def add(self, block_id: int, content_hash: Hashable, num_hashed_tokens: int, last_accessed: float) -> None:
        """Add a block that lost its last reference; its content is found until it is evicted."""
        self._ranked()
        self._add_ranked([(last_accessed, -num_hashed_tokens, block_id)], [content_hash])

    def _add_ranked(self, ranks: list[Rank], contents: Sequence[Hashable]) -> None:
        block_ids = [block_id for _, _, block_id in ranks]
        self._ranks.update(zip(block_ids, ranks, strict=True))
        self._contents.update(zip(block_ids, contents, strict=True))
        self._waiting.extend(ranks)
        num_ranks = len(self._waiting) + len(self._heap) + len(self._queue)
        if num_ranks > STALE_RANKS_PER_BLOCK_MAX * len(self._ranks):
            self._drop_stale()

    def add_all(self, block_ids: list[int], describe: Describe) -> None:
        """Add blocks whose ranks and contents `describe` gives; they must not change while the blocks are here."""
        self._batches.append((block_ids, describe))
        self._num_batched += len(block_ids)

    def _ranked(self) -> dict[int, Rank]:
        """Give ranks to the blocks that have none yet; returns the rank of each block."""
        if self._batches:
            batches, self._batches, self._num_batched = self._batches, [], 0
            for block_ids, describe in batches:
                self._add_ranked(*describe(block_ids))
        return self._ranks

    def update(self, block_id: int, last_accessed: float) -> None:
        """Record a later access of a block. Raises UnknownBlockError if it is not in the evictor."""
        rank = self._ranked().get(block_id)
        if rank is None:
            raise UnknownBlockError(block_id, "the evictor")
        self.add(block_id, self._contents[block_id], -rank[1], last_accessed)

    def remove(self, block_id: int) -> None:
        """Remove a block that is referenced again. Raises UnknownBlockError if it is not in the evictor."""
        if self._ranked().pop(block_id, None) is None:
            raise UnknownBlockError(block_id, "the evictor")
        del self._contents[block_id]

    def evict(self) -> tuple[int, Hashable]:
        """Remove the first block in order; returns its id and its content hash. Raises InvalidValueError if empty."""
        return self.evict_many(1)[0]

    def evict_many(self, num_blocks: int) -> list[tuple[int, Hashable]]:
        """Remove the first blocks in order; returns the id and the content hash of each.

        Raises InvalidValueError if there are fewer blocks; then nothing has changed.
        """
        ranks, contents = self._ranked(), self._contents
        if num_blocks > len(ranks):
            raise InvalidValueError("evictable blocks", len(ranks), f"{num_blocks} cannot be evicted")
        if self._waiting:
            self._sort_waiting()
        queue, heap = self._queue, self._heap
        evicted: list[tuple[int, Hashable]] = []
        while len(evicted) < num_blocks:
            rank = heapq.heappop(heap) if heap and not (queue and queue[0] < heap[0]) else queue.popleft()
            block_id = rank[2]
            if ranks.get(block_id) is rank:
                del ranks[block_id]
                evicted.append((block_id, contents.pop(block_id)))
        return evicted

    def _sort_waiting(self) -> None:
        queue, waiting = self._queue, self._waiting
        waiting.sort()
        num_late = bisect_left(waiting, queue[-1]) if queue else 0
        for rank in waiting[:num_late]:
            heapq.heappush(self._heap, rank)
        queue.extend(waiting[num_late:])
        waiting.clear()

    def in_order(self) -> Iterable[int]:
        """Yield the block ids in the order in which they would be evicted."""
        return [block_id for _, _, block_id in sorted(self._ranked().values())]

    def clear(self) -> None:
        for part in (self._ranks, self._contents, self._queue, self._heap, self._waiting, self._batches):
            part.clear()
        self._num_batched = 0

    def _drop_stale(self) -> None:
        self._queue.clear()
        self._heap.clear()
        self._waiting[:] = self._ranks.values()
