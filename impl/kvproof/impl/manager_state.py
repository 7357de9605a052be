"""The state of the block manager, and the calls that neither take nor release a block.

Block ids are counted over both devices: GPU 0 to G-1, host G to G+C-1. Only swap pairs are counted per device.
Observers read `tables` and `cross_tables` (their `ids`), `refcounts`, `free_ids(device)`, `evictable_ids(device)`,
`null_block_id` and `num_held_back_blocks()`. These are the manager's own objects: observers copy what they keep,
and change nothing.
"""

from collections.abc import Sequence

from .admission import find_contents, num_leading_computed
from .block_arithmetic import num_window_blocks
from .cached_blocks import CachedBlocks, CacheMetricData
from .device_blocks import NO_NULL_BLOCK, Device, DeviceBlocks
from .errors import InvalidValueError, require_at_least
from .growth import Growth
from .sequence import GroupLike, SequenceLike
from .swapping import free_landed
from .table import Table, common_prefix

GPU = Device.GPU  # a look-up in an enumeration is a call in Python


class ManagerState:
    """The state of the manager, and the calls that neither take nor release a block.

    block_size in tokens, watermark as a fraction of the GPU blocks, sliding_window in tokens. Raises InvalidValueError
    for a size or a watermark outside its range, and for a sliding window together with prefix caching.
    """

    def __init__(
        self,
        block_size: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int,
        watermark: float = 0.01,
        sliding_window: int | None = None,
        enable_caching: bool = False,
    ) -> None:
        require_at_least("block_size", block_size, 1)
        require_at_least("num_gpu_blocks", num_gpu_blocks, 0)
        require_at_least("num_cpu_blocks", num_cpu_blocks, 0)
        if isinstance(watermark, bool) or not isinstance(watermark, (int, float)) or not 0 <= watermark <= 1:
            raise InvalidValueError("watermark", watermark, "it must be between 0 and 1")
        self.max_block_sliding_window: int | None = None
        if sliding_window is not None:
            require_at_least("sliding_window", sliding_window, 1)
            if enable_caching:
                raise InvalidValueError("sliding_window", sliding_window, "it cannot be combined with prefix caching")
            self.max_block_sliding_window = num_window_blocks(sliding_window, block_size)
        self.block_size = block_size
        self.num_total_gpu_blocks, self.num_total_cpu_blocks = num_gpu_blocks, num_cpu_blocks
        self.sliding_window, self.enable_caching = sliding_window, enable_caching
        self.watermark, self.watermark_blocks = watermark, int(watermark * num_gpu_blocks)

        num_blocks = num_gpu_blocks + num_cpu_blocks
        self.refcounts = [0] * num_blocks
        self._cache: CachedBlocks | None = None
        self._gpu: DeviceBlocks
        if enable_caching:
            self._gpu = self._cache = CachedBlocks(
                "GPU", range(num_gpu_blocks), self.refcounts, bytearray(num_blocks), block_size
            )
        else:
            self._gpu = DeviceBlocks("GPU", range(num_gpu_blocks), self.refcounts)
        self._host = DeviceBlocks("CPU", range(num_gpu_blocks, num_blocks), self.refcounts)
        self._growth = Growth(self._gpu, block_size, self.max_block_sliding_window)
        self.tables: dict[int, Table] = {}
        self._ids: dict[int, list[int]] = {}  # of each table, so that `get_block_table` is one look-up
        self.cross_tables: dict[str, Table] = {}
        self._num_unmarked = 0  # full blocks in all tables that are not known to be computed
        self._landed: set[int] = set()  # targets of this step's swap-ins; see `swapping`

    # ---- prefix cache ----

    def access_all_blocks_in_seq(self, seq: SequenceLike, now: float) -> None:
        """Record a use of the sequence at time `now`, which decides the order of eviction."""
        table = self.tables.get(seq.seq_id)
        if table is not None and now > table.last_accessed:
            table.last_accessed = now

    def mark_blocks_as_computed(self, seq_group: GroupLike, token_chunk_size: int) -> None:
        """Mark the blocks that the next step completes; it computes `token_chunk_size` more tokens of each sequence."""
        if token_chunk_size.__class__ is not int or token_chunk_size < 0:  # asked here, since a call costs more
            require_at_least("token_chunk_size", token_chunk_size, 0)
        if self._landed:
            self._landed.clear()
        if self._cache is None or not self._num_unmarked:
            return
        tables = self.tables
        for seq in seq_group.get_seqs():
            table = tables.get(seq.seq_id)
            if table is not None and table.num_marked_blocks < len(table.contents) and not table.is_on_host:
                self._mark(self._cache, table, seq.data.get_num_computed_tokens() + token_chunk_size)

    def _mark(self, cache: CachedBlocks, table: Table, num_computed_tokens: int) -> None:
        """Mark the blocks of which every slot is computed."""
        num_blocks = min(num_computed_tokens // self.block_size, len(table.contents))
        first = table.num_marked_blocks
        if first < num_blocks:
            cache.mark_all_computed(zip(table.ids[first:num_blocks], table.contents[first:num_blocks], strict=True))
            table.num_marked_blocks = num_blocks
            self._num_unmarked -= num_blocks - first

    def _num_computed_blocks(self, seq: SequenceLike) -> int:
        """Number of leading blocks with KV: those hit at admission while in prefill, all computed ones afterwards."""
        cache, table = self._cache, self.tables.get(seq.seq_id)
        if cache is None:
            return 0
        if table is None:
            return num_leading_computed(cache, find_contents(cache, seq, self.block_size))
        return table.num_hit_blocks if seq.is_prefill() else table.num_marked_blocks

    def get_num_cached_tokens(self, seq: SequenceLike) -> int:
        """Number of tokens that need not be computed because their full blocks are in the prefix cache."""
        return self._num_computed_blocks(seq) * self.block_size

    def get_common_computed_block_ids(self, seqs: Sequence[SequenceLike]) -> list[int]:
        """Ids of the longest common prefix of computed blocks.

        It may cover a whole prompt; then the last token of the prompt is computed again.
        """
        if any(seq.seq_id not in self.tables for seq in seqs):
            return []
        return common_prefix([self.tables[seq.seq_id].ids[: self._num_computed_blocks(seq)] for seq in seqs])

    def remove_seq_from_computed_blocks_tracker(self, seq: SequenceLike) -> None:
        """Does nothing: a look-up before admission stores nothing."""

    def get_prefix_cache_hit_rate(self, device: Device) -> float:
        """Hits per looked-up block; -1 without prefix caching. The host has no cache of its own."""
        if self._cache is None:
            return -1.0
        return self._cache.metric.get_hit_rate() if device is GPU else CacheMetricData().get_hit_rate()

    def reset_prefix_cache(self, device: Device | None = None) -> bool:
        """Empty the cache. Returns False, and does nothing, while any block is in use: its KV could be cached again."""
        if not (self._gpu.is_idle and self._host.is_idle):
            return False
        if self._cache is not None and device is not Device.CPU:
            self._cache.forget_all()
        return True

    # ---- observation ----

    def get_block_table(self, seq: SequenceLike) -> list[int]:
        """The block ids of the sequence, [] if it has no table. The list is live until the next swap: read only."""
        try:
            return self._ids[seq.seq_id]
        except KeyError:
            return []

    def get_cross_block_table(self, seq_group: GroupLike) -> list[int]:
        """The cross-attention block ids of the request, [] if it has no table. Read only, as with `get_block_table`."""
        table = self.cross_tables.get(seq_group.request_id)
        return [] if table is None else table.ids

    def get_num_free_gpu_blocks(self) -> int:
        """Number of GPU blocks that can be taken, including evictable ones."""
        return self._gpu.num_free

    def get_num_free_cpu_blocks(self) -> int:
        """Number of host blocks that can be taken."""
        return self._host.num_free

    @property
    def null_block_id(self) -> int | None:
        """Id of the null block; None until a window drops a block for the first time."""
        return None if self._gpu.null_id == NO_NULL_BLOCK else self._gpu.null_id

    def free_ids(self, device: Device) -> list[int]:
        """Ids that hold nothing, in the order in which they will be taken."""
        return list((self._gpu if device is GPU else self._host).free_ids)

    def evictable_ids(self, device: Device) -> list[int]:
        """Unreferenced cached blocks, in the order in which they will be evicted."""
        return list(self._cache.evictor.in_order()) if self._cache is not None and device is GPU else []

    def num_held_back_blocks(self) -> int:
        """Number of free GPU blocks that the next swap-in of this step must not use; see `swapping`."""
        return len(free_landed(self._gpu, self._landed))
