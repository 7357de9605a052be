"""transformers' offloading manager with room on the host; its pairs, host tables and free host blocks are recorded.

The pairs are read where the engine reads them: those of a copy to the host from the tables it gives to
`_offload_to_cpu` and the host blocks it has kept for each request, those of a copy back from these host blocks and the
table the scheduler has made meanwhile. Whether exactly those blocks are copied is checked on the tensor.
"""

from typing import Any

from kvproof.check.protocol.manager import Pair, Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig

NUM_TRASH_SECTORS = 2
GIB = 1 << 30


class Offloading:
    """An `OffloadingManager` that records what it moves. It has room for `num_host_blocks` of the configuration."""

    def __init__(self, modules: Any, cache: Any, scheduler: Any, helper: Any, config: SchedulerConfig) -> None:
        ((self._group, self._allocator),) = cache.cache_allocators.items()
        num_sectors, rest = divmod(config.num_host_blocks, self._allocator.blocks_per_sector)
        if rest:
            raise Unsupported("so many host blocks are no whole sectors")
        space = num_sectors * cache.bytes_per_sector / GIB
        self.manager = modules.offloading.OffloadingManager(cache, scheduler, space, 0.0, None, helper)
        self._first_host, self._base = config.num_gpu_blocks, NUM_TRASH_SECTORS * self._allocator.blocks_per_sector
        self.swapped_out: list[Pair] = []  # in the step that is being scheduled, device-relative
        self.swapped_in: list[Pair] = []
        self._out, self._back = self.manager._offload_to_cpu, self.manager.restore_scheduled_requests
        self.manager._offload_to_cpu, self.manager.restore_scheduled_requests = self._to_host, self._from_host

    def _to_host(self, victims: list[Any], tables: dict[str, dict[str, list[int]]]) -> set[str]:
        gone: set[str] = self._out(victims, tables)
        for name in gone:
            kept = self.manager._request_id_to_cpu_blocks[name][self._group]
            moved = [block - self._base for block in tables[name][self._group]]
            self.swapped_out += zip(moved, kept, strict=True)
        return gone

    def _from_host(self, futures: list[Any]) -> None:
        for future in futures:
            if future.state.is_cpu_offloaded:
                name = future.state.request_id
                kept = self.manager._request_id_to_cpu_blocks[name][self._group]
                moved = [block - self._base for block in self._allocator.block_table[name][: len(kept)]]
                self.swapped_in += zip(kept, moved, strict=True)
        self._back(futures)

    @property
    def tables(self) -> dict[str, list[int]]:
        """The host blocks of each request that is there, as absolute ids."""
        kept = self.manager._request_id_to_cpu_blocks
        return {name: [self._first_host + block for block in groups[self._group]] for name, groups in kept.items()}

    @property
    def free_ids(self) -> list[int]:
        """Host blocks that are free, or in a free sector, as absolute ids."""
        pool, size = self.manager._cpu_pool, self._allocator.blocks_per_sector
        if pool is None:
            return []
        ids = [block for leaves in pool._free_blocks[self._allocator.index].trees.values() for block in leaves]
        ids += [block for sector in pool.free_sectors for block in range(sector * size, (sector + 1) * size)]
        return [self._first_host + block for block in ids]

    @property
    def num_free(self) -> int:
        """The number of free host blocks, as the pool counts them."""
        pool, allocator = self.manager._cpu_pool, self._allocator
        if pool is None:
            return 0
        return int(pool.num_free_sectors * allocator.blocks_per_sector + pool.count_free_blocks(allocator.index))
