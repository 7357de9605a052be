"""Record the paged cache of transformers' continuous batching, releases 5.20 to 5.23.

The block ids of a recording count from the first block after the trash sectors, into which padding is written. What a
step computes is known when its indices are made: one call for each request of the batch. Requests of the warm-up are
not recorded. The warm-up ends with a reset, and its requests have no tokens of their own.
"""

from typing import Any

from kvproof.check.recording.format import SCHEMA_VERSION, TRANSFORMERS, Header
from kvproof.check.recording.recorder import KnownSequence, SequenceRecorder, add_tables, add_tokens
from kvproof.check.recording.recording_file import RecordingRefused
from kvproof.check.recording.sequence_lines import RawSequence, SequenceCall

NUM_TRASH_SECTORS = 2
WARM_UP = "__warmup_"  # with this begin the names of the requests of a warm-up
FULL = "full_attention"


class CacheRecorder(SequenceRecorder):
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

    def _line(self, name: str, answer: Any = None, with_table: bool = True) -> SequenceCall:
        known = self._known_as(name)
        seq = RawSequence(known.number)
        if with_table:
            self._add_table(seq, known, name)
        return SequenceCall(answer=answer, group=name, seqs=[seq], base=self._base)

    def _add_table(self, seq: RawSequence, known: KnownSequence, name: str) -> None:
        table = self._tables.get(name)
        add_tables(seq, known, [table] if table else [], None)

    def _add_tokens(self, seq: RawSequence, name: str, state: Any) -> None:
        first: list[int] = state.initial_tokens
        later: list[int] = state.generated_tokens
        num_first = len(first)

        def tokens_from(start: int) -> list[int]:
            if start >= num_first:
                return later[start - num_first :]
            rest = first[start:] if start else first
            return rest + later if later else rest

        add_tokens(seq, self._known_as(name), num_first + len(later), tokens_from)

    def _forget_without_table(self, line: SequenceCall) -> None:
        """Forget a request without blocks."""
        if not line.seqs[0].tables:
            self._forget(line.group, line.seqs[0])

    # Calls ----------------------------------------------------------------------------------------------------------

    def on_can_store_request_tokens(
        self, answer: Any, state: Any, request_len: int, dry_run: bool = False
    ) -> SequenceCall | None:
        """The line of an allocation: `num_tokens` tokens after those that are computed. None for a mere question."""
        if dry_run or state.request_id.startswith(WARM_UP):
            return None
        line = self._line(state.request_id, answer)
        line.num_tokens, line.seqs[0].num_computed = request_len, state.position_offset
        if line.seqs[0].tables:
            self._add_tokens(line.seqs[0], state.request_id, state)
        if state.is_cpu_offloaded:
            line.unjudged = ["KV that returns from host memory"]
        self._forget_without_table(line)
        return line

    def on_search_prefix_match(self, answer: Any, request_id: str, prompt_ids: list[int]) -> SequenceCall:
        """The line of a look-up, which gives what it finds to the request. The answer is the number of tokens."""
        line = self._line(request_id, answer)
        if answer:
            known = self._known_as(request_id)
            add_tokens(line.seqs[0], known, len(prompt_ids), lambda start: prompt_ids[start:] if start else prompt_ids)
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
            size, written = self._allocator.tokens_per_page, write_index[0]
            first = len(written) - query_length
            line.stride = self._allocator.block_physical_stride
            line.places = written[first : first + 1] + written[first + size - past_length % size :: size]
        return line

    def on_mark_complete_blocks(self, answer: Any, state: Any, complete_blocks: Any) -> SequenceCall | None:
        """The line after a step that filled blocks of a request. None if it filled none."""
        if not complete_blocks:
            return None
        line = self._line(state.request_id)
        self._add_tokens(line.seqs[0], state.request_id, state)
        self._forget_without_table(line)
        return line

    def on_prepare_fork_request(
        self, answer: Any, src_state: Any, dst_req_ids: list[str], copy_src_and_dst: Any
    ) -> SequenceCall:
        """The line of a fork: the parent, and each child that found room."""
        parent = src_state.request_id
        line = self._line(parent)
        self._add_tokens(line.seqs[0], parent, src_state)
        num_tokens = self._known[parent].num_tokens
        for name in answer or ():
            self._known.pop(name, None)
            known = self._known_as(name)
            known.num_tokens = num_tokens
            child = RawSequence(known.number, parent=line.seqs[0].seq)
            self._add_table(child, known, name)
            line.seqs.append(child)
        self._forget_without_table(line)
        return line

    def on_perform_cache_copy(
        self, answer: Any, copy_src_and_dst: dict[str, tuple[list[int], list[int]]]
    ) -> SequenceCall:
        """The line of the copies for the children of all forks since the last one."""
        base = self._base
        sources, targets = copy_src_and_dst[self._allocator.layer_type]
        pairs = [(source - base, target - base) for source, target in zip(sources, targets, strict=True)]
        return SequenceCall(answer=pairs)

    def on_free_blocks(self, answer: Any, request_id: str, no_cache: bool = False) -> SequenceCall | None:
        """The line of a release."""
        if request_id.startswith(WARM_UP):
            return None
        line = self._line(request_id)
        self._forget_without_table(line)
        return line

    def on_evict_cached_blocks(self, answer: Any) -> SequenceCall:
        """The line of an eviction of everything that no request holds."""
        return SequenceCall(answer=answer)

    def on_free_all_requests(self, answer: Any, clear_ledgers: bool = False) -> SequenceCall:
        """The line of a release of every request."""
        seqs = [RawSequence(known.number, tables=[], is_over=True) for known in self._known.values()]
        self._known.clear()
        return SequenceCall(seqs=seqs)

    def on_reset(self, answer: Any) -> SequenceCall:
        """The line of a reset: nothing is held or cached."""
        return self.on_free_all_requests(answer)
