"""Observations of vLLM's V0 block managers: tables, refcounts and free lists, and the pairs of a swap or a copy.

Host blocks come after the GPU's; `free_ids` lists what is free, then what is cached and may be evicted, per device.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from kvproof.check.protocol.manager import NULL_BLOCK, Config, Observation, Pair


class Pools:
    """The two allocators of a manager of the second generation."""

    def __init__(self, manager: Any, config: Config) -> None:
        allocators = {device.name: part for device, part in manager.block_allocator._allocators.items()}
        self.parts = (allocators["GPU"], allocators["CPU"])
        gpu = config.num_gpu_blocks
        self.ids = (range(gpu), range(gpu, gpu + config.num_host_blocks))
        self.counts = tuple(part._refcounter._refcounts for part in self.parts)
        self._get = tuple(itemgetter(*ids) if len(ids) > 1 else None for ids in self.ids)
        self.queues = tuple(getattr(part, "_hashless_allocator", part)._free_block_indices for part in self.parts)

    def refs(self) -> list[int]:
        """Refcounts of all blocks, GPU before host."""
        found: list[int] = []
        for counts, ids, get in zip(self.counts, self.ids, self._get, strict=True):
            found += get(counts) if get is not None else [counts[block] for block in ids]
        return found

    def free_ids(self, caching: bool) -> list[int]:
        """For each device, the blocks to be taken next, then the cached ones that may be evicted."""
        gpu, host = self.queues
        if not caching:
            return [*gpu, *host]
        evictable, host_evictable = (part.evictor.free_table for part in self.parts)
        return [*gpu, *evictable, *host, *host_evictable]


def observation_of(
    manager: Any, pools: Pools, config: Config, encoders: Mapping[str, int] | None = None
) -> Observation:
    """Copies of the tables, refcounts and free lists of a manager of the second generation.

    encoders: for each request with a cross-attention table, the sequence under which it is shown.
    """
    free = (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks())
    tables = {seq: [table.physical_block_ids[:]] for seq, table in manager.block_tables.items()}
    for request, seq in (encoders or {}).items():
        tables[seq] = [manager.cross_block_tables[request].physical_block_ids[:]]
    refs, free_ids = pools.refs(), pools.free_ids(config.caching)
    null = manager.block_allocator._null_block if config.window else None
    if null is None:
        return Observation(tables, free, (), refs, free_ids)
    kept = null.block_id
    refs[kept] = 0
    for (table,) in tables.values():
        if kept in table:
            table[:] = [NULL_BLOCK if block == kept else block for block in table]
    return Observation(tables, free, (kept,), refs, free_ids)


class BlockPools:
    """The two allocators of a manager of the first generation, whose blocks hold their own refcounts.

    With caching, blocks exist from the first time they are taken; those not taken yet are free. A block's number is
    relative to its device.
    """

    def __init__(self, manager: Any, config: Config) -> None:
        self.parts = (manager.gpu_allocator, manager.cpu_allocator)
        self.sizes = (config.num_gpu_blocks, config.num_host_blocks)
        self.num_gpu = config.num_gpu_blocks
        self.caching = config.caching
        # Without caching all blocks exist from the start, and are never replaced.
        self.blocks = [] if config.caching else [block for part in self.parts for block in self._in_order(part)]

    @staticmethod
    def _in_order(part: Any) -> list[Any]:
        return sorted(part.free_blocks, key=lambda block: block.block_number)

    def refs(self) -> list[int]:
        """Refcounts of all blocks, GPU before host."""
        if not self.caching:
            return [block.ref_count for block in self.blocks]
        refs = [0] * sum(self.sizes)
        for part, base in zip(self.parts, (0, self.num_gpu), strict=True):
            for block in (*part.evictor.free_table.values(), *part.cached_blocks.values()):
                refs[base + block.block_number] = block.ref_count
        return refs

    def free_ids(self) -> list[int]:
        """For each device, the blocks that were never taken or are free, then the cached ones that may be evicted."""
        ids: list[int] = []
        for part, base, size in zip(self.parts, (0, self.num_gpu), self.sizes, strict=True):
            if self.caching:
                ids += range(base + part.current_num_blocks, base + size)
                ids += [base + block.block_number for block in part.evictor.free_table.values()]
            else:
                ids += [base + block.block_number for block in part.free_blocks]
        return ids


def absolute_ids(table: Iterable[Any], num_gpu_blocks: int) -> list[int]:
    """The block ids of a table of the first generation; host blocks are numbered after those of the GPU."""
    return [block.block_number + (num_gpu_blocks if block.device.name == "CPU" else 0) for block in table]


def pairs(mapping: Any) -> list[Pair]:
    """Pairs (source, target), from any of the forms that releases return.

    mapping: nothing, one pair, a list of pairs, or a mapping from a source to one or several targets.
    """
    if not mapping:
        return []
    if isinstance(mapping, dict):
        return [
            (source, one)
            for source, target in mapping.items()
            for one in (target if isinstance(target, list) else [target])
        ]
    if isinstance(mapping[0], int):
        return [(mapping[0], mapping[1])]
    return [(source, target) for source, target in mapping]
