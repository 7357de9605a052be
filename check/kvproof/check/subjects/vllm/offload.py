"""vLLM's offloading manager for host memory, as a subject of store level: releases 0.11 to 0.33, policies lru and arc.

The manager and its policies are the release's own. Before 0.19 each policy is a manager of its own, over a backend that
has the slots; from then on there is one manager with a policy. A chunk (a block, before 0.30) is none -> refcount -1
(being written) -> 0 -> the number of loads. Look-ups were of a whole prefix before 0.20; the adapter asks for one key
at a time. Each request has one context, which the manager gets with every call from 0.20 on.
"""

import inspect
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from kvproof.check.protocol.capabilities import StoreCan
from kvproof.check.protocol.manager import Assumption, Refused, Unsupported
from kvproof.check.protocol.store import HIT, LRU, MISS, PENDING, RETRY, Staged, StoreConfig, StoreObservation
from kvproof.check.subjects.loading import download, partial_import
from kvproof.check.subjects.loading.stub_modules import Unused
from kvproof.check.subjects.vllm.v0_loader import ceil_div
from kvproof.check.subjects.vllm.v1_loader import quiet_logger
from kvproof.check.subjects.vllm.v1_observation import call_with
from kvproof.spec.text.eviction_policy import KEY_LRU

ARC = "arc"
KEY_BYTES, GROUP = 8, (0).to_bytes(4, "big")  # of a key: the hash of a block, then the number of its KV cache group
TOKENS_OF_CHUNK = 16
LRU_MANAGER = "v1.kv_offload.lru_manager"
POLICIES = "v1.kv_offload.cpu.policies.base"
CONNECTOR = "distributed.kv_transfer.kv_connector.v1.offloading"
STAND_INS: dict[str, dict[str, Any]] = {
    "distributed": {},
    "distributed.kv_events": {"MEDIUM_CPU": "CPU"},
    "distributed.kv_transfer": {},
    "distributed.kv_transfer.kv_connector": {},
    "distributed.kv_transfer.kv_connector.v1": {},
    CONNECTOR: {},
    f"{CONNECTOR}.metrics": {"OffloadingConnectorStats": Unused},
    "logger": {"init_logger": quiet_logger},
    "utils": {},
    "utils.math_utils": {"cdiv": ceil_div},
    "v1.core.kv_cache_utils": {"BlockHash": bytes, "resolve_kv_cache_block_sizes": Unused},
}
# A look-up answers a number of blocks, then a bool or None for "being written", then a member of LookupResult.
ANSWERS = {True: HIT, False: MISS, None: PENDING, "HIT": HIT, "MISS": MISS, "HIT_PENDING": PENDING, "RETRY": RETRY}
# Where a manager has the slots that were given back and the number of those that were ever given out, and what a chunk
# calls its slot
SLOT_NAMES = {
    ("_free_list", "_num_allocated_chunks"): "chunk_id",
    ("_free_list", "_num_allocated_blocks"): "block_id",
    ("allocated_blocks_free_list", "num_allocated_blocks"): "block_id",
}
SIZE_NAMES = ("_num_chunks", "_num_blocks", "num_blocks")  # where a manager has the number of its slots
ASSUMPTIONS = (
    Assumption("loads-what-is-there", "The caller loads only keys that a look-up finds at that moment."),
    Assumption(
        "reports-once", "Each transfer is reported once, with the keys that it began with, unless a reset came first."
    ),
    Assumption("fences-resets", "When the cache is reset, transfers under way end before another one begins."),
)


class OffloadReader:
    """Reads what an offloading manager of any release has: its entries, and the slots that are free."""

    def __init__(self, manager: Any, num_slots: int | None = None) -> None:
        """num_slots: how many slots the manager has; by default what it says itself."""
        host = getattr(manager, "primary_tier", manager)
        self._pool: Any = getattr(host, "backend", host)
        kept = getattr(host, "_policy", host)
        entries = getattr(kept, "chunks", None)
        entries = getattr(kept, "blocks", None) if entries is None else entries
        self._tables: list[dict[bytes, Any]] = [kept.t1, kept.t2] if entries is None else [entries]
        lists = next(names for names in SLOT_NAMES if all(hasattr(self._pool, name) for name in names))
        self._free_slots, self._slot_of = attrgetter(*lists), attrgetter(SLOT_NAMES[lists])
        if num_slots is None:
            num_slots = next(int(getattr(self._pool, name)) for name in SIZE_NAMES if hasattr(self._pool, name))
        self.num_slots = num_slots

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        """The key, the slot and the count of each entry; the count is -1 while it is written, else that of loads."""
        slot_of = self._slot_of
        return ((name, slot_of(chunk), chunk.ref_cnt) for table in self._tables for name, chunk in table.items())

    def has(self, name: bytes) -> bool:
        """Whether the key has an entry."""
        return any(name in table for table in self._tables)

    def free_slots(self) -> list[int]:
        """The slots without an entry: those that came back, then those that were never given out."""
        given_back, num_used = self._free_slots(self._pool)
        return [*given_back, *range(num_used, self.num_slots)]

    def num_free(self) -> int:
        """How many slots have no entry."""
        given_back, num_used = self._free_slots(self._pool)
        number: int = len(given_back) + self.num_slots - num_used
        return number


class VllmOffload:
    """`CPUOffloadingManager`, before 0.19 `LRUOffloadingManager` and `ARCOffloadingManager`."""

    assumptions: tuple[Assumption, ...] = ASSUMPTIONS
    stand_ins = STAND_INS

    def __init__(self, version: str) -> None:
        self.name = f"vllm-offload {version}"
        self._module = partial_import.mount("vllm", download.find("vllm", version), self.stand_ins)
        self._policies: dict[str, Callable[[int], Any]] = self._makers()
        kind = self._class
        self.capabilities = StoreCan(
            reset="reset_cache" in vars(kind),
            lost_hits=0,
            refusal_slack=0,
            replacements=tuple(self._policies),
            eviction=self._eviction(),
        )
        self._asks_for_one = "key" in inspect.signature(kind.lookup).parameters
        contexts = {
            name: "req_context" in inspect.signature(getattr(kind, name)).parameters
            for name in ("lookup", "touch", "prepare_load", "complete_load", "prepare_store", "complete_store")
        }
        self._with_context = {name for name, has_context in contexts.items() if has_context}
        base = "v1.kv_offload.base" if partial_import.has_module("vllm", "v1.kv_offload.base") else None
        if base is None and self._with_context:
            base = "v1.kv_offload.abstract"
        self._context_class = self._module(base).ReqContext if base else None
        self._names: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}

    def _eviction(self) -> str:
        """What is evicted first: from 0.33 on, all keys of a request have one date, and its last ones go first."""
        has = partial_import.has_module
        if has("vllm", LRU_MANAGER) or not has("vllm", POLICIES):
            return KEY_LRU
        return "" if hasattr(self._module(POLICIES).CachePolicy, "on_request_access") else KEY_LRU

    def _makers(self) -> dict[str, Callable[[int], Any]]:
        """For each policy, the function that makes a manager with so many slots."""
        has = partial_import.has_module
        if not has("vllm", LRU_MANAGER):
            self._class = self._module("v1.kv_offload.cpu.manager").CPUOffloadingManager

            def make(policy: str) -> Callable[[int], Any]:
                sizes = ("num_blocks", "num_chunks")
                return lambda slots: call_with(
                    self._class, dict.fromkeys(sizes, slots) | {"block_size": TOKENS_OF_CHUNK, "cache_policy": policy}
                )

            return {policy: make(policy) for policy in (LRU, ARC)}
        backend = self._module("v1.kv_offload.backends.cpu").CPUBackend
        self._class = self._module(LRU_MANAGER).LRUOffloadingManager
        managers = {LRU: self._class}
        if has("vllm", "v1.kv_offload.arc_manager"):
            managers[ARC] = self._module("v1.kv_offload.arc_manager").ARCOffloadingManager

        def made(manager: Any) -> Callable[[int], Any]:
            return lambda slots: manager(backend(block_size=TOKENS_OF_CHUNK, num_blocks=slots))

        return {policy: made(manager) for policy, manager in managers.items()}

    def open(self, config: StoreConfig) -> None:
        if config.replacement not in self._policies:
            raise Unsupported(f"{self.name} has no policy {config.replacement}")
        self._manager: Any = self._policies[config.replacement](config.num_slots)
        self._reader = OffloadReader(self._manager, config.num_slots)
        self._contexts: dict[int, Any] = {}
        self._num_contexts = 0
        self._begun: dict[int, Any] = {}  # transfer -> the context that its request had

    # Keys and requests ---------------------------------------------------------------------------------------------

    def _hashes(self, keys: list[int]) -> list[bytes]:
        names = self._names
        for key in keys:
            if key not in names:
                names[key] = name = key.to_bytes(KEY_BYTES, "big") + GROUP
                self._numbers[name] = key
        return [names[key] for key in keys]

    def _keys(self, hashes: Any) -> list[int]:
        return [self._numbers[one] for one in hashes]

    def _call(self, name: str, request: int, keys: list[int], transfer: int = 0) -> Any:
        """A call for a request that is there. transfer: the transfer that it begins, if it does."""
        hashes = self._hashes(keys)
        context = self._context(request, hashes)
        if transfer:
            self._begun[transfer] = context
        return getattr(self._manager, name)(hashes, *([context] if name in self._with_context else []))

    def _end(self, name: str, transfer: int, keys: list[int], *options: bool) -> None:
        """A call for a transfer, whose request may be over."""
        context = [self._begun[transfer]] if name in self._with_context else []
        getattr(self._manager, name)(self._hashes(keys), *context, *options)

    def _context(self, request: int, hashes: list[bytes]) -> Any:
        """The context of a request, with the positions of these keys; None in releases without contexts."""
        if self._context_class is None:
            return None
        context = self._contexts.get(request)
        if context is None:
            self._num_contexts += 1
            context = call_with(self._context_class, {"req_id": f"{request}-{self._num_contexts}"})
            self._contexts[request] = context
            if hasattr(self._manager, "on_new_request"):
                self._manager.on_new_request(context)
        if hasattr(context, "set_offload_key_position"):
            for one in hashes:
                context.set_offload_key_position(one, (self._numbers[one] + 1) * TOKENS_OF_CHUNK)
        return context

    # The calls -----------------------------------------------------------------------------------------------------

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        lookup = self._manager.lookup
        hashes = self._hashes(keys)
        if not self._asks_for_one:
            return [ANSWERS[answer if answer is None else bool(answer)] for answer in (lookup([one]) for one in hashes)]
        context = self._context(request, hashes)
        answers = [lookup(one, context) for one in hashes]
        return [ANSWERS[getattr(answer, "name", answer)] for answer in answers]

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int] | Refused:
        slots: list[int] = self._call("prepare_load", request, keys, transfer).block_ids.tolist()
        return slots

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        self._end("complete_load", transfer, keys)

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        output = self._call("prepare_store", request, keys, transfer)
        if output is None:
            return Refused()
        taken = output.keys_to_store if hasattr(output, "keys_to_store") else output.block_hashes_to_store
        evicted = output.evicted_keys if hasattr(output, "evicted_keys") else output.block_hashes_evicted
        return Staged(self._keys(taken), output.store_spec.block_ids.tolist(), self._keys(evicted))

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        for keys, is_stored in ((stored, True), (failed, False)):
            if keys:
                self._end("complete_store", transfer, keys, is_stored)

    def touch(self, request: int, keys: list[int]) -> None:
        self._call("touch", request, keys)

    def finish(self, request: int) -> None:
        context = self._contexts.pop(request, None)
        if context is not None and hasattr(self._manager, "on_request_finished"):
            self._manager.on_request_finished(context)

    def clear(self) -> None:
        self._begun.clear()
        self._manager.reset_cache()
        if hasattr(self._manager, "on_reset_flushed"):
            self._manager.on_reset_flushed()

    # Observing -----------------------------------------------------------------------------------------------------

    def observe(self) -> StoreObservation:
        entries: dict[int, int] = {}
        refs: dict[int, int] = {}
        for name, slot, num_loads in self._reader.entries():
            key = self._numbers[name]
            entries[key], refs[key] = slot, num_loads
        free_ids = self._reader.free_slots()
        return StoreObservation(entries, len(free_ids), refs, free_ids)

    def observe_part(self) -> StoreObservation:
        return StoreObservation({}, self._reader.num_free())
