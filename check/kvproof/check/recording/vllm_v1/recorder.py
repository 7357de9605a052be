"""Record vLLM V1's `KVCacheManager`, releases 0.8.3 to 0.33.

The tokens of a request are recorded when it gets slots. The engine itself counts the computed tokens
(`num_computed_tokens`).
"""

from functools import lru_cache
from operator import attrgetter
from typing import Any

from kvproof.check.protocol.manager import FULL, LOCAL, NULL_BLOCK, WINDOW
from kvproof.check.recording.format import SCHEMA_VERSION, VLLM_V1, Header
from kvproof.check.recording.recorder import KnownSequence, SequenceRecorder, add_tables, add_tokens
from kvproof.check.recording.recording_file import RecordingRefused
from kvproof.check.recording.sequence_lines import RawSequence, SequenceCall

FULL_SPECS = ("FullAttentionSpec", "MLAAttentionSpec")
WINDOW_SPECS = ("SlidingWindowSpec", "SlidingWindowMLASpec")
LOCAL_SPECS = ("ChunkedLocalAttentionSpec",)
UNJUDGED = (  # what an allocation may ask for, or come beside
    "external tokens",
    "delayed caching",
    "encoder tokens",
    "reserved blocks",
    "steps under way that it does not count",
)
NUM_DIGESTS_KEPT = 1 << 12  # of salts and images, which many lines name
block_id_of = attrgetter("block_id")


class V1Recorder(SequenceRecorder):
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
        self._null_id: int = pool.null_block.block_id
        self._text_digest = lru_cache(NUM_DIGESTS_KEPT)(self.digest)
        coordinator = getattr(manager, "coordinator", None)
        inner = coordinator.single_type_managers if coordinator else [getattr(manager, "single_type_manager", manager)]
        self._rows = [one.req_to_blocks for one in inner]
        specs = [group.kv_cache_spec for group in config.kv_cache_groups]
        windows = [spec.sliding_window for spec in specs if type(spec).__name__ in WINDOW_SPECS]
        chunks = [spec.attention_chunk_size for spec in specs if type(spec).__name__ in LOCAL_SPECS]
        self._leaves_entries = bool(windows or chunks)
        kinds = [_kind_of(spec, specs[0].block_size, windows, chunks) for spec in specs]
        for place, (one, spec) in enumerate(zip(inner, specs, strict=False)):
            if (num_slots := getattr(one, "block_size", spec.block_size)) != spec.block_size:  # context parallelism
                kinds[place] = f"{type(spec).__name__} whose blocks of {spec.block_size} hold {num_slots} tokens"
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
            kv_groups=tuple(kinds),
            free=free,
            reserved=[self._null_id],
            is_fresh=free[0] == len(self._pool.blocks) - 1 and all(b.block_hash is None for b in self._pool.blocks),
        )

    def free(self) -> tuple[int, int]:
        return self._pool.get_num_free_blocks(), 0

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """Refcounts, and the free queue in order."""
        from kvproof.check.subjects.vllm.v1_observation import ManagerReader

        seen = ManagerReader(self.manager).observe()
        return seen.refs, seen.free_ids

    # Requests -------------------------------------------------------------------------------------------------------

    def _line(
        self, request: Any, answer: Any = None, with_tokens: bool = False, with_tables: bool = True
    ) -> SequenceCall:
        request_id = request.request_id
        name = str(request_id)
        known = self._known_as(name)
        seq = RawSequence(known.number, request.num_computed_tokens)
        if in_flight := getattr(request, "num_in_flight_tokens", 0):
            seq.num_in_flight = in_flight
        if with_tokens:
            self._add_tokens(seq, known, request)
        if with_tables:
            rows = [rows.get(request_id) or [] for rows in self._rows]
            add_tables(seq, known, rows if any(rows) else [], self._ids_of)
        return SequenceCall(answer=answer, group=name, seqs=[seq])

    def _add_tokens(self, seq: RawSequence, known: KnownSequence, request: Any) -> None:
        if (adapter := request.lora_request) is not None:
            seq.adapter = int(getattr(adapter, "lora_int_id", adapter.adapter_id))
        if request.cache_salt is not None:
            seq.extra = self._text_digest(request.cache_salt)
        if features := getattr(request, "mm_features", None):
            digest = self._text_digest
            places = [(digest(one.identifier), one.mm_position) for one in features]
            seq.images = [(name, place.offset, place.length) for name, place in places]
        tokens = request.all_token_ids
        whole = getattr(tokens, "_x", tokens)  # of vLLM's ConstantList
        add_tokens(seq, known, request.num_tokens, lambda start: tokens[start:] if start else whole)

    def _ids_of(self, blocks: list[Any]) -> list[int]:
        ids = list(map(block_id_of, blocks))
        return [NULL_BLOCK if one == self._null_id else one for one in ids] if self._null_id in ids else ids

    # Calls ----------------------------------------------------------------------------------------------------------

    def on_get_computed_blocks(self, answer: Any, request: Any, *limits: Any, **more: Any) -> SequenceCall:
        """The line of a look-up, with the number of tokens found."""
        is_new = str(request.request_id) not in self._known
        line = self._line(request, None if answer is None else int(answer[1]), with_tables=False)
        if is_new:
            self._forget(line.group, line.seqs[0])
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
    ) -> SequenceCall:
        """The line of an allocation; the answer is whether blocks were returned."""
        line = self._line(request, answer is not None, with_tokens=True)
        line.num_tokens, line.num_hit = num_new_tokens, num_new_computed_tokens
        num_known = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
        longest: int = getattr(self.manager, "max_model_len", num_known + num_lookahead_tokens)
        line.lookahead = max(0, min(num_lookahead_tokens, longest - num_known))  # no token has a slot beyond the model
        is_ahead = self._leaves_entries and not hasattr(request, "num_in_flight_tokens")
        num_ahead = getattr(request, "num_output_placeholders", 0) if is_ahead else 0  # of asynchronous scheduling
        asked = (num_external_computed_tokens, delay_cache_blocks, num_encoder_tokens, reserved_blocks, num_ahead)
        if any(asked):
            line.unjudged = [name for name, value in zip(UNJUDGED, asked, strict=True) if value]
        if not line.seqs[0].tables:
            self._forget(line.group, line.seqs[0])
        return line

    def on_free(self, answer: Any, request: Any) -> SequenceCall:
        """The line of a release, with the status of the request."""
        line = self._line(request)
        line.status = request.status.name
        self._forget(line.group, line.seqs[0])
        return line

    def on_cache_blocks(self, answer: Any, request: Any, num_computed_tokens: int) -> SequenceCall:
        """The line that reports tokens sampled ahead, and the number of tokens with KV."""
        line = self._line(request, with_tokens=True)
        line.num_tokens = num_computed_tokens
        return line

    def on_reset_prefix_cache(self, answer: Any) -> SequenceCall:
        return SequenceCall(answer=None if answer is None else bool(answer))

    def on_new_step_starts(self, answer: Any) -> SequenceCall:
        """The line that marks the end of the previous step's scheduling."""
        return SequenceCall()

    def _not_judged(self, answer: Any, *arguments: Any, **options: Any) -> SequenceCall:
        """The line of a call that uses other memory or frees later, which cannot be judged."""
        return SequenceCall(unjudged=["call"])

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
