"""Stand-ins for SGLang's requests, with the fields and methods that its memory cache reads and writes.

The names are those of `sglang/srt/managers/schedule_batch.py`, from release 0.5.9 on. From 0.5.16 on, SGLang keeps
the pool state of a request in a separate record, `req.kv`; here this record is the request itself.
"""

from array import array
from collections.abc import Sequence
from typing import Any

from kvproof.check.subjects.loading.stub_modules import StubObject


class FakeRequest:
    """A request. `computed` is the number of tokens whose KV exists, or is computed by the current step."""

    # Features that are off: priorities, sessions, speculation, sliding windows, states of other layers, embeddings.
    priority = 0
    swa_evict_floor = swa_evicted_seqlen = swa_host_hit_length = mamba_host_hit_length = host_hit_length = 0
    session = session_id = kv_rotation_base = swa_uuid_for_lock = finished_len = multimodal_inputs = None
    mamba_pool_idx = None
    is_chunked = 1  # a request that has a row keeps it from chunk to chunk
    skip_radix_cache_insert = swa_prefix_lock_released = holds_mamba = False

    def __init__(
        self, seq: int, tokens: Sequence[int], extra_key: str | None, salt: str | None, as_array: bool
    ) -> None:
        self.rid, self.extra_key, self.cache_salt = str(seq), extra_key, salt
        self.all_ids: Any = array("q", tokens) if as_array else list(tokens)
        self.num_origin = len(tokens)
        self.is_over = False
        self.waits()

    def waits(self) -> None:
        """Reset the request to one that holds nothing: it is new, or was retracted."""
        self.req_pool_idx: int | None = None
        self.cache_protected_len = self.cache_inserted_len = 0
        self.kv_committed_len = self.kv_allocated_len = 0
        self.skip_lock_node_ids: dict[Any, Any] = {}  # up to 0.5.19
        self.component_evicted_seqlens: dict[Any, int] = {}
        self.last_node: Any = None
        self.lock: Any = None
        self.lock_receipt: Any = None
        self.prefix_indices: Any = None
        self.prefix_len = 0
        self.num_prompt = len(self.all_ids)  # after a retraction, the sampled tokens are part of the prompt
        self.computed = 0

    # Tokens -----------------------------------------------------------------------------------------------------

    @property
    def origin_input_ids(self) -> Any:
        return self.all_ids[: self.num_origin]

    @property
    def output_ids(self) -> Any:
        return self.all_ids[self.num_origin :]

    @property
    def full_untruncated_fill_ids(self) -> Any:
        return self.all_ids[:]

    @property
    def ids_but_last(self) -> Any:
        """All tokens except the last, which a look-up leaves to be computed."""
        return self.all_ids[:-1]

    @property
    def fill_ids(self) -> Any:
        return self.all_ids[: self.computed]

    def get_fill_ids(self) -> Any:
        return self.fill_ids

    def refresh_fill_ids(self) -> None:
        """Do nothing: the ids are computed at each read."""

    @property
    def fill_len(self) -> int:
        return self.computed

    extend_end = fill_len

    @property
    def extend_range(self) -> Any:
        return StubObject(start=self.prefix_len, end=self.computed)

    @property
    def seqlen(self) -> int:
        return len(self.all_ids)

    def finished(self) -> bool:
        return self.is_over

    @property
    def finished_reason(self) -> str | None:
        return "stop" if self.is_over else None

    # Pool state -------------------------------------------------------------------------------------------------

    @property
    def kv(self) -> Any:
        return self

    @kv.setter
    def kv(self, record: Any) -> None:
        """Ignore the assignment: a release replaces the record together with the row, but the values are kept here."""

    @property
    def holds_kv(self) -> bool:
        return self.req_pool_idx is not None

    @property
    def is_kv_released(self) -> bool:
        return self.kv_allocated_len == 0

    def mark_kv_released(self) -> None:
        self.kv_allocated_len = 0

    def get_evicted_seqlen(self, component: Any) -> int:
        return self.component_evicted_seqlens.get(component, 0)

    def swa_dead_lo(self, page_size: int) -> int:
        return self.cache_protected_len

    def owned_kv_len(self) -> int:
        return self.kv_committed_len

    effective_kv_committed_len = owned_kv_len
    pop_committed_kv_cache = owned_kv_len

    def pop_overallocated_kv_cache(self) -> tuple[int, int]:
        return self.kv_committed_len, self.kv_allocated_len

    def is_dllm(self) -> bool:
        return False
