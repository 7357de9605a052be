"""Record vLLM V1's `KVCacheManager`, releases 0.8.3 to 0.33.

The tokens of a request are recorded when it gets slots. The engine itself counts the computed tokens
(`num_computed_tokens`). A recording gives each request a number, from its first line to its last, and also its own id.
"""

from typing import Any

from kvproof.check.protocol.manager import FULL, LOCAL, NULL_BLOCK, WINDOW
from kvproof.check.recording.format import SCHEMA_VERSION, VLLM_V1, Header, Picture, RecordedCall, RecordedSequence
from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.recording_file import RecordingRefused

FULL_SPECS = ("FullAttentionSpec", "MLAAttentionSpec")
WINDOW_SPECS = ("SlidingWindowSpec", "SlidingWindowMLASpec")
LOCAL_SPECS = ("ChunkedLocalAttentionSpec",)


class V1Recorder(Recorder):
    """Records a `KVCacheManager`."""

    calls = (
        "get_computed_blocks",
        "get_computed_blocks_for_connector",
        "allocate_slots",
        "free",
        "pop_blocks_for_free",
        "cache_blocks",
        "remove_skipped_blocks",
        "evict_blocks",
        "reset_prefix_cache",
        "new_step_starts",
    )

    def header(self) -> Header:
        """The configuration, from that of the manager. Raises RecordingRefused for another class."""
        manager = self.manager
        config = getattr(manager, "kv_cache_config", None)
        pool: Any = getattr(manager, "block_pool", None)
        if config is None or not hasattr(pool, "free_block_queue"):
            raise RecordingRefused(f"{type(manager).__name__} is not a KVCacheManager of vLLM 0.8.3 or newer")
        self._pool: Any = pool
        self._null = self._pool.null_block
        coordinator = getattr(manager, "coordinator", None)
        inner = coordinator.single_type_managers if coordinator else [getattr(manager, "single_type_manager", manager)]
        self._rows = [one.req_to_blocks for one in inner]
        self._numbers_of: dict[str, int] = {}
        self._num_requests = 0
        specs = [group.kv_cache_spec for group in config.kv_cache_groups]
        windows = [spec.sliding_window for spec in specs if type(spec).__name__ in WINDOW_SPECS]
        chunks = [spec.attention_chunk_size for spec in specs if type(spec).__name__ in LOCAL_SPECS]
        free = self.free()
        return Header(
            kvproof_recording=SCHEMA_VERSION,
            interface=VLLM_V1,
            manager=f"{type(manager).__module__}.{type(manager).__name__}",
            block_size=specs[0].block_size,
            num_gpu_blocks=len(self._pool.blocks),
            window=windows[0] if windows else None,
            local_chunk=chunks[0] if chunks else None,
            caching=bool(manager.enable_caching),
            kv_groups=tuple(_kind_of(spec, specs[0].block_size, windows, chunks) for spec in specs),
            free=free,
            reserved=self.reserved(),
            is_fresh=free[0] == len(self._pool.blocks) - 1 and all(b.block_hash is None for b in self._pool.blocks),
        )

    def free(self) -> tuple[int, int]:
        return self._pool.get_num_free_blocks(), 0

    def reserved(self) -> list[int]:
        return [self._null.block_id]

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """Refcounts, and the free queue in order."""
        from kvproof.check.subjects.vllm.v1_observation import ManagerReader

        seen = ManagerReader(self.manager).observe()
        return seen.refs, seen.free_ids

    # Requests -------------------------------------------------------------------------------------------------------

    def _line(
        self, request: Any, answer: Any = None, with_tokens: bool = False, with_tables: bool = True
    ) -> RecordedCall:
        name = str(request.request_id)
        number = self._numbers_of.get(name)
        if number is None:
            self._num_requests += 1
            number = self._numbers_of[name] = self._num_requests
        recorded = RecordedSequence(number, num_computed=request.num_computed_tokens)
        recorded.num_in_flight = getattr(request, "num_in_flight_tokens", 0)
        if with_tokens:
            self._add_tokens(recorded, request)
        if with_tables:
            self.new_tables(recorded, self._tables(request.request_id), self._ids_of)
        return RecordedCall(0, "", group=name, seqs=[recorded], answer=answer)

    def _add_tokens(self, recorded: RecordedSequence, request: Any) -> None:
        tokens = request.all_token_ids
        adapter = request.lora_request
        recorded.adapter = 0 if adapter is None else int(getattr(adapter, "lora_int_id", adapter.adapter_id))
        recorded.extra = self.digest(request.cache_salt)
        features = getattr(request, "mm_features", None) or ()
        recorded.images = [
            Picture(self.digest(one.identifier), one.mm_position.offset, one.mm_position.length) for one in features
        ]
        self.new_tokens(recorded, request.num_tokens, lambda start: tokens[start:])

    def _tables(self, name: Any) -> list[list[Any]]:
        """The blocks of the request in each group."""
        rows = [rows.get(name) or [] for rows in self._rows]
        return rows if any(rows) else []

    def _ids_of(self, blocks: list[Any]) -> list[int]:
        null = self._null
        return [NULL_BLOCK if block is null else block.block_id for block in blocks]

    # Calls ----------------------------------------------------------------------------------------------------------

    def on_get_computed_blocks(self, answer: Any, request: Any, *limits: Any, **more: Any) -> RecordedCall:
        """The line of a look-up, with the number of tokens found."""
        line = self._line(request, None if answer is None else int(answer[1]), with_tables=False)
        self._forget_unknown(line)
        return line

    def on_allocate_slots(
        self,
        answer: Any,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        *more: Any,
        **options: Any,
    ) -> RecordedCall:
        """The line of an allocation; the answer is whether blocks were returned."""
        line = self._line(request, answer is not None, with_tokens=True)
        line.num_tokens, line.num_hit, line.lookahead = num_new_tokens, num_new_computed_tokens, num_lookahead_tokens
        asked = {
            "external tokens": num_external_computed_tokens,
            "delayed caching": delay_cache_blocks,
            "encoder tokens": num_encoder_tokens,
            "reserved blocks": reserved_blocks,
        }
        line.unjudged = [name for name, value in asked.items() if value]
        if not line.seqs[0].tables:
            self._forget(line)
        return line

    def on_free(self, answer: Any, request: Any) -> RecordedCall:
        """The line of a release, with the status of the request."""
        line = self._line(request)
        line.status = request.status.name
        self._forget(line)
        return line

    def _forget(self, line: RecordedCall) -> None:
        """Forget a request without blocks; if it returns, everything about it is recorded again."""
        self.known.pop(line.seqs[0].seq, None)
        self._numbers_of.pop(line.group, None)

    def _forget_unknown(self, line: RecordedCall) -> None:
        if line.seqs[0].seq not in self.known:
            self._numbers_of.pop(line.group, None)

    def on_cache_blocks(self, answer: Any, request: Any, num_computed_tokens: int) -> RecordedCall:
        """The line that reports tokens sampled ahead, and the number of tokens with KV."""
        line = self._line(request, with_tokens=True)
        line.num_tokens = num_computed_tokens
        return line

    def on_reset_prefix_cache(self, answer: Any) -> RecordedCall:
        return RecordedCall(0, "", answer=None if answer is None else bool(answer))

    def on_new_step_starts(self, answer: Any) -> RecordedCall:
        """The line that marks the end of the previous step's scheduling."""
        return RecordedCall(0, "")

    def _not_judged(self, answer: Any, *arguments: Any, **options: Any) -> RecordedCall:
        """The line of a call that uses other memory or frees later, which cannot be judged."""
        return RecordedCall(0, "", unjudged=["call"])

    on_get_computed_blocks_for_connector = _not_judged
    on_pop_blocks_for_free = _not_judged
    on_remove_skipped_blocks = _not_judged
    on_evict_blocks = _not_judged


def _kind_of(spec: Any, block_size: int, windows: list[int], chunks: list[int]) -> str:
    """The kind of a KV group; for one that no recording can judge, its description, which is no kind.

    block_size: that of the first group. windows, chunks: of all groups; a recording has one of each.
    """
    name = type(spec).__name__
    if spec.block_size != block_size:
        return f"{name} with blocks of {spec.block_size} instead of {block_size}"
    if name in WINDOW_SPECS:
        return WINDOW if spec.sliding_window == windows[0] else f"{name} of {spec.sliding_window} tokens"
    if name in LOCAL_SPECS:
        return LOCAL if spec.attention_chunk_size == chunks[0] else f"{name} of {spec.attention_chunk_size} tokens"
    return FULL if name in FULL_SPECS else name
