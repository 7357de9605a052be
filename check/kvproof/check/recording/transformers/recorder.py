"""Record the paged cache of transformers' continuous batching, releases 5.20 to 5.23.

The block ids of a recording count from the first block after the trash sectors, into which padding is written. What a
step computes is known when its indices are made: one call for each request of the batch. Requests of the warm-up are
not recorded. The warm-up ends with a reset, and its requests have no tokens of their own.
"""

from typing import Any

from kvproof.check.recording.format import SCHEMA_VERSION, TRANSFORMERS, Header, RecordedCall, RecordedSequence
from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.recording_file import RecordingRefused

NUM_TRASH_SECTORS = 2
WARM_UP = "__warmup_"  # with this begin the names of the requests of a warm-up
FULL = "full_attention"


class CacheRecorder(Recorder):
    """Records a `PagedAttentionCache`."""

    calls = (
        "can_store_request_tokens",
        "search_prefix_match",
        "extend_read_and_write_indices",
        "fill_block_table",
        "mark_complete_blocks",
        "prepare_fork_request",
        "perform_cache_copy",
        "free_blocks",
        "evict_cached_blocks",
        "free_all_requests",
        "reset",
    )

    def header(self) -> Header:
        """The configuration, from that of the cache. Raises RecordingRefused for another class."""
        cache = self.manager
        allocators = list(getattr(cache, "cache_allocators", {}).values())
        if not allocators or not hasattr(getattr(cache, "pool", None), "free_sectors"):
            raise RecordingRefused(f"{type(cache).__name__} is not a PagedAttentionCache of transformers 5.20 or newer")
        self._allocator: Any = allocators[0]
        self._pool: Any = cache.pool
        self._ledger: Any = self._allocator.ledger
        self._tables: dict[str, list[int]] = self._allocator.block_table
        self._per_sector: int = self._allocator.blocks_per_sector
        self._base = NUM_TRASH_SECTORS * self._per_sector
        self._numbers_of: dict[str, int] = {}
        self._num_requests = 0
        free = self.free()
        return Header(
            kvproof_recording=SCHEMA_VERSION,
            interface=TRANSFORMERS,
            manager=f"{type(cache).__module__}.{type(cache).__name__}",
            block_size=self._allocator.tokens_per_page,
            num_gpu_blocks=self._allocator.num_blocks,
            caching=bool(cache.use_prefix_sharing),
            kv_groups=tuple("full" if one.layer_type == FULL else one.layer_type for one in allocators),
            free=free,
            is_fresh=free[0] == self._allocator.num_blocks and not self._ledger.block_to_hash,
        )

    def free(self) -> tuple[int, int]:
        """Blocks that are free, in a free sector, or cached without a holder."""
        pool = self._pool
        num_free = len(pool.free_sectors) * self._per_sector + pool.count_free_blocks(self._allocator.index)
        return num_free + len(self._ledger.cached_blocks), 0

    def reserved(self) -> list[int]:
        """There are none."""
        return []

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """Refcounts, and free ids in the order of their numbers: between two calls the pool may move sectors."""
        base, size, ledger = self._base, self._per_sector, self._ledger
        refs = [0] * self._allocator.num_blocks
        for table in self._tables.values():
            for block in table:
                refs[block - base] = ledger.shared_ref_counts.get(block, 1)
        ids = list(ledger.cached_blocks)
        for leaves in self._pool._free_blocks[self._allocator.index].trees.values():
            ids += leaves
        for sector in self._pool.free_sectors:
            ids += range(sector * size, (sector + 1) * size)
        return refs, sorted(block - base for block in ids)

    # Requests -------------------------------------------------------------------------------------------------------

    def _line(self, name: str, answer: Any = None, with_table: bool = True) -> RecordedCall:
        recorded = self._sequence(name, with_table)
        return RecordedCall(0, "", group=name, seqs=[recorded], answer=answer)

    def _sequence(self, name: str, with_table: bool = True) -> RecordedSequence:
        number = self._numbers_of.get(name)
        if number is None:
            self._num_requests += 1
            number = self._numbers_of[name] = self._num_requests
        recorded = RecordedSequence(number)
        if with_table:
            table = self._tables.get(name)
            self.new_tables(recorded, [table] if table else [], self._ids_of)
        return recorded

    def _ids_of(self, blocks: list[int]) -> list[int]:
        base = self._base
        return [block - base for block in blocks]

    def _add_tokens(self, recorded: RecordedSequence, state: Any) -> None:
        first, later = state.initial_tokens, state.generated_tokens
        num_first = len(first)
        self.new_tokens(
            recorded,
            num_first + len(later),
            lambda start: later[start - num_first :] if start >= num_first else first[start:] + later,
        )

    def _forget_without_table(self, line: RecordedCall) -> None:
        """Forget a request without blocks; if it returns, everything about it is recorded again."""
        if not line.seqs[0].tables:
            self.known.pop(line.seqs[0].seq, None)
            self._numbers_of.pop(line.group, None)

    # Calls ----------------------------------------------------------------------------------------------------------

    def on_can_store_request_tokens(
        self, answer: Any, state: Any, request_len: int, dry_run: bool = False
    ) -> RecordedCall | None:
        """The line of an allocation: `num_tokens` tokens after those that are computed. None for a mere question."""
        if dry_run or state.request_id.startswith(WARM_UP):
            return None
        line = self._line(state.request_id, answer)
        line.num_tokens, line.seqs[0].num_computed = request_len, state.position_offset
        if line.seqs[0].tables:
            self._add_tokens(line.seqs[0], state)
        if state.is_cpu_offloaded:
            line.unjudged = ["KV that returns from host memory"]
        self._forget_without_table(line)
        return line

    def on_search_prefix_match(self, answer: Any, request_id: str, prompt_ids: list[int]) -> RecordedCall:
        """The line of a look-up, which gives what it finds to the request. The answer is the number of tokens."""
        line = self._line(request_id, answer)
        if answer:
            self.new_tokens(line.seqs[0], len(prompt_ids), lambda start: prompt_ids[start:])
        self._forget_without_table(line)
        return line

    def _of_step(self, answer: Any, request_id: str, past_length: int, query_length: int, *more: Any) -> Any:
        """The line of what a step computes of one request: `num_tokens` tokens after those that are computed."""
        if request_id.startswith(WARM_UP):
            return None
        line = self._line(request_id, with_table=False)
        line.num_tokens, line.seqs[0].num_computed = query_length, past_length
        return line

    on_fill_block_table = _of_step

    def on_extend_read_and_write_indices(
        self,
        answer: Any,
        request_id: str,
        past_length: int,
        query_length: int,
        read_index: list[list[int]] | None,
        write_index: list[list[int]],
    ) -> Any:
        """As `_of_step`, and the block to which each of its pages is written."""
        line = self._of_step(answer, request_id, past_length, query_length)
        if line is not None:
            size, stride = self._allocator.tokens_per_page, self._allocator.block_physical_stride
            written, base = write_index[0], self._base
            first = len(written) - query_length
            starts = [first, *range(first + size - past_length % size, len(written), size)]
            line.slots = [
                (written[at] // stride - base) * size + written[at] % stride for at in starts if at < len(written)
            ]
        return line

    def on_mark_complete_blocks(self, answer: Any, state: Any, complete_blocks: Any) -> RecordedCall | None:
        """The line after a step that filled blocks of a request. None if it filled none."""
        if not complete_blocks:
            return None
        line = self._line(state.request_id)
        self._add_tokens(line.seqs[0], state)
        self._forget_without_table(line)
        return line

    def on_prepare_fork_request(
        self, answer: Any, src_state: Any, dst_req_ids: list[str], copy_src_and_dst: Any
    ) -> RecordedCall:
        """The line of a fork: the parent, and each child that found room."""
        line = self._line(src_state.request_id)
        self._add_tokens(line.seqs[0], src_state)
        for name in answer or ():
            child = self._sequence(name)
            self._add_tokens(child, src_state)
            line.seqs.append(child)
        self._forget_without_table(line)
        return line

    def on_perform_cache_copy(
        self, answer: Any, copy_src_and_dst: dict[str, tuple[list[int], list[int]]]
    ) -> RecordedCall:
        """The line of the copies for the children of all forks since the last one."""
        base = self._base
        sources, targets = copy_src_and_dst[self._allocator.layer_type]
        pairs = [(source - base, target - base) for source, target in zip(sources, targets, strict=True)]
        return RecordedCall(0, "", answer=pairs)

    def on_free_blocks(self, answer: Any, request_id: str, no_cache: bool = False) -> RecordedCall | None:
        """The line of a release."""
        if request_id.startswith(WARM_UP):
            return None
        line = self._line(request_id)
        self._forget_without_table(line)
        return line

    def on_evict_cached_blocks(self, answer: Any) -> RecordedCall:
        """The line of an eviction of everything that no request holds."""
        return RecordedCall(0, "", answer=answer)

    def on_free_all_requests(self, answer: Any, clear_ledgers: bool = False) -> RecordedCall:
        """The line of a release of every request."""
        names, self._numbers_of = self._numbers_of, {}
        self.known.clear()
        seqs = [RecordedSequence(number, tables=[]) for number in names.values()]
        return RecordedCall(0, "", seqs=seqs)

    def on_reset(self, answer: Any) -> RecordedCall:
        """The line of a reset: nothing is held or cached."""
        return self.on_free_all_requests(answer)
