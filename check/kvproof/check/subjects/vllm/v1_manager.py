"""vLLM's V1 KV cache manager as a subject: releases 0.6.5 to 0.33.

The manager has no admission query: `allocate_slots` returns slots or None. The adapter plays vLLM's scheduler
(`vllm/v1/core/sched/scheduler.py`). It looks a waiting request up and passes the blocks found to the call that
allocates; when a step is done, it sets what the request has computed. Differences between releases are read from
signatures, once, in `Calls`.

KV cache groups are of full attention, of a sliding window of one width, or of local attention in chunks of one size.
From 0.9.1 on a manager has several of them; older releases, with the prefix cache, combine full attention with one
other kind only. From 0.12 on groups may have blocks of different sizes, and from 0.15 on states (Mamba).

From 0.14 on the manager takes tokens from elsewhere (`num_external_computed_tokens`), as the scheduler has them with a
connector: loaded within the step, or before, where blocks are cached when the load is over (`delay_cache_blocks`).

Limits: no other kinds of attention; no watermark (from 0.30 on, the scheduler has it).
"""

import inspect
from math import gcd
from typing import Any

from kvproof.check.protocol.block_events import BlockEvent
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import (
    Admitted,
    Assumption,
    Config,
    Observation,
    Refused,
    Reserved,
    Scheduled,
    Unsupported,
)
from kvproof.check.protocol.manager_adapter import ManagerAdapter
from kvproof.check.subjects.loading import download, partial_import
from kvproof.check.subjects.vllm.v1_events import (
    REPORT_MODE,
    REPORTED,
    block_events,
    groups_that_keep_all,
    names_of,
    reports_groups,
    require_events,
)
from kvproof.check.subjects.vllm.v1_fakes import FakeRequest
from kvproof.check.subjects.vllm.v1_loader import content_hash, hasher_of, import_release
from kvproof.check.subjects.vllm.v1_observation import (
    MODEL_LENGTH_MAX,
    ManagerReader,
    cache_config,
    call_with,
    has_retention,
    state_size,
    with_groups,
)
from kvproof.check.subjects.vllm.v1_states import NOT_VERIFIED
from kvproof.spec.text.eviction_policy import EMPTY_FIRST_LRU, SEQUENCE_LRU
from kvproof.spec.text.identity import Image, Key

EVENTS_OPTION = "enable_kv_cache_events"
ASSUMPTIONS = (
    Assumption("found-blocks-at-once", "The blocks that a look-up finds are handed over at once, or not at all."),
    Assumption("one-request-at-a-time", "A request is allocated to once in a step; what is freed is not in the step."),
    Assumption("adapter-ids", "Two adapters never have the same id; their names may be equal."),
    Assumption("image-rows", "An image's name fixes its number of rows; images do not overlap and come in order."),
    Assumption("lookahead-constant", "The number of lookahead slots is the same in every call."),
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


class Calls:
    """How the calls of a release differ from those of others, by the signatures of its manager."""

    def __init__(self, manager: Any) -> None:
        self.options = frozenset(inspect.signature(manager).parameters)
        allocate = inspect.signature(manager.allocate_slots).parameters
        self.takes_found = "new_computed_blocks" in allocate  # from 0.7.3; before, they are the third argument
        self.takes_num_found = "num_new_computed_tokens" in allocate  # from 0.8.3
        self.takes_lookahead = "num_lookahead_tokens" in allocate  # from 0.8.3
        self.takes_loads = "num_external_computed_tokens" in allocate
        self.appends = hasattr(manager, "append_slots")  # before 0.7.3, for a request that runs
        self.frees_hashes = hasattr(manager, "free_block_hashes")  # 0.8.0 to 0.10
        self.takes_block_ids = hasattr(manager, "take_new_block_ids")  # from 0.17, what a step has to zero
        self.starts_steps = hasattr(manager, "new_step_starts")
        self.resets = hasattr(manager, "reset_prefix_cache")


def eviction_policy(utils: Any) -> str:
    """The eviction policy of a release: from 0.24 on, its pool puts blocks without content before all others.

    In 0.23 a caller of the pool may ask for that, and only the managers of windows do.
    """
    if not hasattr(utils.FreeKVCacheBlockQueue, "prepend_n"):
        return SEQUENCE_LRU
    pool = partial_import.module_of("vllm", "v1.core.block_pool").BlockPool
    return SEQUENCE_LRU if "prepend" in inspect.signature(pool.free_blocks).parameters else EMPTY_FIRST_LRU


def keeps_last_cached() -> bool:
    """Whether local attention keeps its last cached block, read or not: up to 0.11.0."""
    kinds = partial_import.module_of("vllm", "v1.core.single_type_kv_cache_manager")
    return not hasattr(kinds.ChunkedLocalAttentionManager, "get_num_skipped_tokens")


def keeps_states_at_boundaries() -> bool:
    """Whether states have the mode "align" of a prefix cache: from 0.15 on."""
    kinds = partial_import.module_of("vllm", "v1.core.single_type_kv_cache_manager")
    return "mamba_cache_mode" in inspect.getsource(kinds)


def loads_states(version: str) -> bool:
    """Whether the scheduler of a release loads KV beside states in a prefix cache; others assert that it is not.

    Source: `_mamba_block_aligned_split`.
    """
    scheduler = download.find("vllm", version) / "vllm" / "v1" / "core" / "sched" / "scheduler.py"
    return scheduler.exists() and NOT_VERIFIED not in scheduler.read_text()


class VllmV1(ManagerAdapter):
    """`KVCacheManager`."""

    def __init__(self, version: str) -> None:
        self.name = f"vllm-v1 {version}"
        self._release = release = import_release(version)
        self._class = release.manager.KVCacheManager
        self._calls = calls = Calls(self._class)
        hashed = inspect.getsource(release.utils)
        self._by_config = "kv_cache_config" in calls.options
        self._hashes = hasattr(release.utils, "get_request_block_hasher")
        has_groups = self._by_config and hasattr(release.manager, "get_kv_cache_coordinator")  # from 0.9.1
        has_local = has_groups and hasattr(release.interface, "ChunkedLocalAttentionSpec")  # from 0.10
        self.capabilities = Capabilities(
            has_admission_query=False,
            window=self._by_config and hasattr(release.interface, "SlidingWindowSpec"),
            caching=True,
            window_with_caching=True,
            local_attention=has_local,
            lookahead=calls.takes_lookahead,
            chunked=True,
            adapters="lora" in hashed,
            salts="cache_salt" in hashed,
            images="mm_" in hashed,
            embeddings="prompt_embeds" in hashed,
            reset=calls.resets,
            window_drop_when_refused=True,
            same_step_hits=True,
            steps_are_certain=True,
            lost_hits=0 if has_groups else None,
            refusal_slack=0 if has_groups else None,
            window_slack=int(has_local and keeps_last_cached()) if has_groups else None,
            eviction=eviction_policy(release.utils) if has_groups else "",
            kv_groups=has_groups,
            block_sizes="hash_block_size" in calls.options,
            states=has_groups and keeps_states_at_boundaries(),
            hash_seeds=self._hashes,
            retention=has_retention(release.interface),
            drafting="use_eagle" in calls.options,
            block_events=reports_groups(),
            loads=calls.takes_loads,
            context_parallel="dcp_world_size" in calls.options,
        )
        self._loads_states = loads_states(version)
        self._reports_hits = REPORT_MODE in inspect.getsource(release.manager)
        self.assumptions = ASSUMPTIONS

    def make(self, config: Config) -> Any:
        hash_size = gcd(*config.block_sizes)
        require_events(config, self._reports_hits)
        if config.loads and config.caching and config.has_states and not self._loads_states:
            raise Unsupported("transfers with states in a prefix cache")
        is_in_place = config.has_states and not config.caching
        wanted = {
            "block_size": config.block_size,
            "hash_block_size": hash_size,
            "scheduler_block_size": state_size(config) if is_in_place else config.block_size,
            "num_gpu_blocks": config.num_gpu_blocks,
            "max_model_len": MODEL_LENGTH_MAX,
            "enable_caching": config.caching,
            "num_preallocate_tokens": 0,
            "use_eagle": config.drafting,
            EVENTS_OPTION: config.events > 0,
            "dcp_world_size": config.ranks,
        }
        if self._by_config:
            wanted["kv_cache_config"] = cache_config(self._release.interface, config)
        self._hasher = None
        if self._hashes:
            hasher = hasher_of(self._release.utils, config, hash_size)
            self._hasher = hasher if config.caching else None
        elif hasattr(self._release.utils, "init_none_hash"):
            self._release.utils.init_none_hash(content_hash)
        manager = with_groups(lambda: call_with(self._class, wanted))
        if getattr(getattr(manager, "coordinator", None), "enable_partial_hash_hits", False):
            raise Unsupported("hits that end within the block of a state")
        self._reader = ManagerReader(manager)
        self._requests: dict[int, FakeRequest] = {}
        self._elsewhere: dict[int, int] = {}  # by group: tokens that a connector has
        self._loading: set[int] = set()  # sequences whose blocks are cached when their load is over
        return manager

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        super().new(group, seqs, tokens, key, images)
        (seq,) = seqs
        self._requests[seq] = request = FakeRequest(seq, tokens, key, images, self._hasher, self.config.embeddings)
        request.kv_cache_report_mode = REPORTED[self.config.events]
        request.status = self._status("WAITING")

    def new_elsewhere(self, group: int, num_tokens: int) -> None:
        self._elsewhere[group] = num_tokens

    def _request(self, group: int) -> FakeRequest:
        (seq,) = self.groups[group]
        return self._requests[seq]

    def _status(self, name: str) -> Any:
        return getattr(self._release.status, name)

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        self._requests[seq].append_token(token)

    def hits(self, group: int) -> int:
        return self._found(self._request(group))[1]

    def _found(self, request: FakeRequest) -> tuple[Any, int]:
        """The blocks that a look-up finds, and the number of tokens in them."""
        if not self.config.caching:
            return None, 0
        answer = self.manager.get_computed_blocks(request)
        if isinstance(answer, tuple):
            blocks, num_tokens = answer[0], int(answer[1])
            if len(answer) > 2:  # from 0.26 on, where another prompt left a prefix of this one: the request keeps it
                request.shared_prefix_boundary = answer[2]
        else:
            blocks, num_tokens = answer, len(answer) * self.config.block_size
        if num_tokens >= request.num_tokens and isinstance(blocks, list):
            # Before 0.8, the scheduler drops the last block.
            blocks, num_tokens = blocks[:-1], num_tokens - self.config.block_size
        return blocks, num_tokens

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        request = self._request(group)
        blocks, hit = self._found(request)
        num_loaded = max(0, self._elsewhere.get(group, 0) - hit)
        start = hit + num_loaded
        left = request.num_tokens - start
        if left < 1:  # for no tokens there is no call
            return Admitted(hit)
        count = min(left, self._chunk(request, start, num_tokens)) if self.config.chunked else left
        options: dict[str, Any] = {"new_computed_blocks": blocks}
        if num_loaded:
            is_later = self.config.loads > 1
            count = 0 if is_later else count
            options |= {"num_external_computed_tokens": num_loaded, "delay_cache_blocks": is_later}
            self._loading.update(self.groups[group] if is_later else ())
        if self._calls.takes_num_found:
            options["num_new_computed_tokens"] = hit
        if self.config.lookahead:
            options["num_lookahead_tokens"] = self.config.lookahead
        if self._calls.takes_found:
            slots = self.manager.allocate_slots(request, count, **options)
        else:
            slots = self.manager.allocate_slots(request, count, blocks or [])
        if slots is None:
            self._loading.difference_update(self.groups[group])
            return Refused("allocate_slots returned None")
        request.num_computed_tokens = start
        request.status = self._status("RUNNING")
        self._admitted.update(self.groups[group])
        return Admitted(hit, loaded=num_loaded)

    def _chunk(self, request: FakeRequest, start: int, num_tokens: int) -> int:
        """The tokens of a chunk; with states in a prefix cache the scheduler lets it end at a block boundary.

        No chunk runs past the last boundary before the end of the prompt, or with a draft model the one before that.
        """
        if not (self.config.caching and self.config.has_states):
            return num_tokens
        size = self.config.block_size
        stop = -(-(start + num_tokens) // size) * size
        last = ((request.num_tokens - 1) // size - self.config.drafting) * size
        return (min(stop, last) if start < last else stop) - start

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        call = self.manager.append_slots if self._calls.appends else self.manager.allocate_slots
        options = {"num_lookahead_tokens": self.config.lookahead} if self.config.lookahead else {}
        slots = call(self._requests[seq], num_tokens, **options)
        return Refused("no slots were returned") if slots is None else Reserved()

    def release(self, seq: int) -> None:
        self.manager.free(self._requests[seq])

    def free(self, seq: int) -> None:
        """End the request, and in the releases that keep its block hashes, free them."""
        super().free(seq)
        request = self._requests.pop(seq)
        if self._calls.frees_hashes:
            self.manager.free_block_hashes(request)

    def preempt(self, group: int) -> None:
        """Preempt as the scheduler does: the request gives up its blocks, keeps its tokens, and waits again."""
        super().preempt(group)
        request = self._request(group)
        request.num_computed_tokens = 0
        request.num_preemptions = 1
        request.status = self._status("PREEMPTED")

    def step_done(self, step: list[Scheduled]) -> None:
        for one in step:
            self._requests[one.seq].num_computed_tokens = one.stop
            if one.seq in self._loading:
                self.manager.cache_blocks(self._requests[one.seq], one.stop)
        self._loading.clear()
        if self._calls.takes_block_ids:
            self.manager.take_new_block_ids()
        if self._calls.starts_steps:
            self.manager.new_step_starts()

    def reset_cache(self) -> bool:
        return bool(self.manager.reset_prefix_cache())

    def block_events(self) -> list[BlockEvent]:
        return block_events(self.manager.take_events(), groups_that_keep_all(self.config))

    def block_names(self, tokens: list[int], key: Key, images: tuple[Image, ...]) -> list[str]:
        request = FakeRequest(0, tokens, key, images, self._hasher, self.config.embeddings)
        return names_of(self._release.utils, request.block_hashes)

    def observe(self) -> Observation:
        return self._reader.observe()

    def observe_part(self, seqs: list[int]) -> Observation:
        return self._reader.observe_part(seqs)
