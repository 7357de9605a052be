"""How often a block that was looked up was in the prefix cache.

Queries are counted in groups of 1,000. The rate is the mean over all completed groups and the current one, weighted by
their number of queries, so that sums stay small over months of service.

Source: vLLM 0.9, vllm/core/block/common.py, CacheMetricData.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class CacheMetricData:
    """The hit rate of one cache."""

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
