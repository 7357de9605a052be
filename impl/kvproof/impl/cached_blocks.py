"""The blocks of a device on which full blocks can be found by content: the prefix cache.

A full block is *registered* under its content when its tokens are known. From then on tables can share it. Its KV may
be missing: every sequence that shares the block before it is computed writes the same KV. A block is *computed* when a
step has written every slot, and only a computed block is a hit. A registered block that loses its last reference goes
to the evictor if it is computed. Otherwise nobody will write it, so it is forgotten and its id is free. So the evictor
has computed blocks only.

A block may hold a content under which another block, its twin, is registered. Such a block is *private*: it is not
found, and its id is free when it is released. If a private block is computed and its registered twin is not, they
change roles. If the registered block is evicted, a computed private block takes its place. So a computed content in use
is always found.

Ids that hold nothing are taken first; then blocks are evicted.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from .content import NO_BLOCK, Content, ContentIndex
from .device_blocks import DeviceBlocks
from .errors import NoFreeBlocksError
from .evictor import LRUEvictor, Rank


@dataclass(slots=True)
class CacheMetricData:
    """The hit rate of one cache: how often a block that was looked up was in it.

    Queries are counted in groups of 1,000. The rate is the mean over all completed groups and the current one, weighted
    by their number of queries, so that sums stay small over months of service.

    Source: vLLM 0.9, vllm/core/block/common.py, CacheMetricData.
    """

    num_completed_blocks: int = 0
    completed_block_cache_hit_rate: float = 0.0
    num_incompleted_block_queries: int = 0
    num_incompleted_block_hit: int = 0
    block_size: int = 1000

    def query(self, hit: bool) -> None:
        self.query_many(1, 1 if hit else 0)

    def query_many(self, num_queries: int, num_hits: int) -> None:
        """Count `num_queries` look-ups, of which the first `num_hits` were hits."""
        while num_queries:
            queries = min(num_queries, self.block_size - self.num_incompleted_block_queries)
            hits = min(num_hits, queries)
            self.num_incompleted_block_queries += queries
            self.num_incompleted_block_hit += hits
            num_queries, num_hits = num_queries - queries, num_hits - hits
            if self.num_incompleted_block_queries == self.block_size:
                self._complete()

    def get_hit_rate(self) -> float:
        """Hits per query, between 0 and 1; 0 before the first query."""
        current = self.num_incompleted_block_queries / self.block_size
        weight = self.num_completed_blocks + current
        if not weight:
            return 0.0
        hits = self.completed_block_cache_hit_rate * self.num_completed_blocks
        return (hits + self.num_incompleted_block_hit / self.block_size) / weight

    def _complete(self) -> None:
        rate = self.num_incompleted_block_hit / self.block_size
        total = self.completed_block_cache_hit_rate * self.num_completed_blocks + rate
        self.num_completed_blocks += 1
        self.completed_block_cache_hit_rate = total / self.num_completed_blocks
        self.num_incompleted_block_queries = self.num_incompleted_block_hit = 0


NEVER_ACCESSED = -1.0


class CachedBlocks(DeviceBlocks):
    """The blocks of one device with a prefix cache. `computed` is one list over all devices."""

    def __init__(
        self, name: str, block_ids: Sequence[int], refcounts: list[int], computed: bytearray, block_size: int
    ) -> None:
        super().__init__(name, block_ids, refcounts)
        self.block_size = block_size
        self.computed = computed
        self.contents = ContentIndex()
        self.evictor = LRUEvictor()
        self.metric = CacheMetricData()
        self.content_of: list[Content | None] = [None] * len(refcounts)
        self.private_content_of: dict[int, Content] = {}  # of each computed private block
        self.last_accessed: list[float] = [NEVER_ACCESSED] * len(refcounts)
        # Whether a block was the source of a copy since it was taken; `growth` says why.
        self.was_copied = bytearray(len(refcounts))

    @property
    def num_free(self) -> int:
        return len(self.free_ids) + self.evictor.num_blocks

    def all_free_ids(self) -> list[int]:
        return [*self.free_ids, *self.evictor.in_order()]

    def take(self, num_blocks: int) -> list[int]:
        free_ids = self.free_ids
        if num_blocks > len(free_ids):
            if num_blocks > self.num_free:
                raise NoFreeBlocksError(num_blocks, self.num_free, self.name)
            self._evict(num_blocks - len(free_ids))
        refcounts, was_copied, last_accessed = self.refcounts, self.was_copied, self.last_accessed
        popleft = free_ids.popleft
        taken = [popleft() for _ in range(num_blocks)]
        for block_id in taken:
            refcounts[block_id] = 1
            was_copied[block_id] = 0
            last_accessed[block_id] = NEVER_ACCESSED
        return taken

    def take_one(self) -> int:
        free_ids = self.free_ids
        if not free_ids:
            if not self.evictor.num_blocks:
                raise NoFreeBlocksError(1, 0, self.name)
            self._evict(1)
        block_id = free_ids.popleft()
        self.refcounts[block_id] = 1
        self.was_copied[block_id] = 0
        self.last_accessed[block_id] = NEVER_ACCESSED
        return block_id

    def _evict(self, num_blocks: int) -> None:
        """Give up the contents of the first blocks in the order of eviction; their ids are free then."""
        for block_id, _ in self.evictor.evict_many(num_blocks):
            self.forget(block_id)
            self.free_ids.append(block_id)

    def pin(self, block_id: int) -> None:
        """Add a reference to a registered block, and take it out of the evictor if it was there."""
        refcount = self.refcounts[block_id]
        if not refcount:
            self.evictor.remove(block_id)
        self.refcounts[block_id] = refcount + 1

    def release(self, block_ids: Iterable[int]) -> None:
        block_ids = list(block_ids)
        if len(block_ids) > 1:
            block_ids = block_ids[self._release_leading(block_ids) :]
        refcounts, free_ids, content_of, computed = self.refcounts, self.free_ids, self.content_of, self.computed
        evictable: list[int] = []
        for block_id in block_ids:
            left = refcounts[block_id] - 1
            refcounts[block_id] = left
            if left:
                continue
            content = content_of[block_id]
            if content is not None and computed[block_id]:
                evictable.append(block_id)
            else:
                if content is not None:
                    self.forget(block_id)
                elif computed[block_id] and (content := self.private_content_of.pop(block_id, None)) is not None:
                    content.twins.remove(block_id)
                computed[block_id] = 0
                free_ids.appendleft(block_id)
        if evictable:
            self.evictor.add_all(evictable, self._ranks_and_contents)

    def _release_leading(self, block_ids: list[int]) -> int:
        """Release the leading blocks that are computed and registered, if nobody else holds any; returns their number.

        This is the usual end of a sequence. There are at least two blocks.
        """
        of_each: Any = itemgetter(*block_ids)
        if of_each(self.refcounts).count(1) < len(block_ids):
            return 0
        num_computed = bytes((*of_each(self.computed), 0)).index(0)
        if not all(of_each(self.content_of)[:num_computed]):
            return 0
        leading, refcounts = block_ids[:num_computed], self.refcounts
        for block_id in leading:
            refcounts[block_id] = 0
        if leading:
            self.evictor.add_all(leading, self._ranks_and_contents)
        return num_computed

    def _ranks_and_contents(self, block_ids: list[int]) -> tuple[list[Rank], list[Hashable]]:
        """The ranks and contents of registered blocks without a reference."""
        last_accessed, content_of, each_minus = self.last_accessed, self.content_of, -self.block_size
        contents: list[Any] = [content_of[block_id] for block_id in block_ids]
        ranks = [
            (last_accessed[block_id], content.depth * each_minus, block_id)
            for block_id, content in zip(block_ids, contents, strict=True)
        ]
        return ranks, contents

    def register(self, block_id: int, content: Content) -> None:
        """Register `block_id` under `content`, unless another block is."""
        if content.block_id == NO_BLOCK:
            content.block_id = block_id
            content.num_needs += 1
            self.content_of[block_id] = content

    def register_new(self, block_ids: Iterable[int], contents: Iterable[Content]) -> None:
        """Register each block under its content, under which no other block is."""
        content_of = self.content_of
        for block_id, content in zip(block_ids, contents, strict=False):
            content.block_id = block_id
            content.num_needs += 1
            content_of[block_id] = content

    def mark_computed(self, block_id: int, content: Content) -> None:
        """Record that every slot of the block holds the KV of `content`."""
        self.mark_all_computed([(block_id, content)])

    def mark_all_computed(self, pairs: Iterable[tuple[int, Content]]) -> None:
        """Record for each pair that every slot of the block holds the KV of the content."""
        computed, private_content_of = self.computed, self.private_content_of
        for block_id, content in pairs:
            computed[block_id] = 1
            twin = content.block_id
            if twin == block_id:
                continue
            if twin == NO_BLOCK:
                self.register(block_id, content)
            elif computed[twin]:
                if block_id not in private_content_of:
                    private_content_of[block_id] = content
                    content.twins.append(block_id)
            else:
                self.content_of[twin] = None
                self.content_of[block_id] = content
                content.block_id = block_id

    def record_access(self, block_ids: Iterable[int], now: float) -> None:
        """Record an access of each block at time `now`; an earlier time is ignored."""
        last_accessed = self.last_accessed
        for block_id in block_ids:
            if now > last_accessed[block_id]:
                last_accessed[block_id] = now

    def forget_all(self) -> None:
        """Empty the cache and its metric. No table may hold a block."""
        for block_id in self.evictor.in_order():
            self.forget(block_id)
            self.free_ids.append(block_id)
        self.evictor.clear()
        self.metric = CacheMetricData()

    def forget(self, block_id: int) -> None:
        """Remove the registration of the block; its content is still found if a computed twin is in use."""
        content = self.content_of[block_id]
        if content is not None:
            self.content_of[block_id] = None
            if content.twins:
                content.block_id, *content.twins = content.twins
                self.content_of[content.block_id] = self.private_content_of.pop(content.block_id)
            else:
                content.block_id = NO_BLOCK
                self.contents.release(content)
        self.computed[block_id] = 0
