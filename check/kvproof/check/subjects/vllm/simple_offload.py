"""vLLM's SimpleCPUOffloadConnector on the side of the scheduler, as a subject of store level: releases 0.29 to 0.33.

`SimpleCPUOffloadScheduler` and both block pools, of the device and of the host, are the release's own. A slot is a
block of the host; its block 0 is the null block, which is no slot. A key is the hash of one block.

A store is that of one request: the adapter puts blocks with these hashes into the pool of the device, as if the request
had computed them. By default the connector stores eagerly, in a step with this request. In its lazy mode the request
ends after that step, and the next one stores what is in the device's queue of free blocks, in the order of eviction,
behind the block that it came to before (the cursor). A load is that of another request with these hashes, into new
blocks of the device. When a store is over, its blocks leave the device, and so do those that were not stored: what a
step stores is of one call, and the lazy mode never comes to a block for a second time.

Limits: one KV cache group; the disk, partial blocks and events are off; a lazy step looks at all free blocks. A step
that finds fewer blocks of the host free than it needs stores as many as there are. A store cannot fail.
"""

from typing import Any

from kvproof.check.protocol.capabilities import StoreCan
from kvproof.check.protocol.manager import Assumption, Refused, Unsupported
from kvproof.check.protocol.store import HIT, LRU, MISS, Staged, StoreAdapter, StoreConfig, StoreObservation
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.vllm.v1_observation import call_with
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options, import_simple_offload

TOKENS, KEY_BYTES = 1, 8  # of a block; of the hash of a key
BYTES_OF_BLOCK = 64
BLOCKS_PER_SLOT, BLOCKS_AT_LEAST = 8, 80  # of the device, more than all transfers under way use


def tensor_of(interface: Any, num_blocks: int) -> Any:
    """The memory of so many blocks of the device, of which the connector only reads the size."""
    parts = {
        "size": num_blocks * BYTES_OF_BLOCK,
        "shared_by": ["layer"],
        "layers": [],
        "layer_stride": 0,
        "block_stride": BYTES_OF_BLOCK,
        "offset": 0,
    }
    return call_with(interface.KVCacheTensor, parts)


class Step(Options):
    """What a step of the scheduler says: by default, nothing."""

    def __init__(self, requests: dict[str, list[int]]) -> None:
        super().__init__(
            scheduled_new_reqs=[StubObject(req_id=name, block_ids=(ids,)) for name, ids in requests.items()],
            scheduled_cached_reqs=StubObject(req_ids=[], new_block_ids=[], resumed_req_ids=set()),
            num_scheduled_tokens=dict.fromkeys(requests, 1),
            finished_req_ids=set(),
            preempted_req_ids=set(),
        )


class VllmSimpleOffload(StoreAdapter):
    """`SimpleCPUOffloadScheduler`."""

    capabilities = StoreCan(
        reset=True, lost_hits=0, refusal_slack=None, never_fails=True, stores_what_fits=True, lazy_stores=True
    )
    assumptions: tuple[Assumption, ...] = (
        Assumption("loads-what-is-there", "The caller loads only keys that a look-up finds at that moment."),
        Assumption("fences-resets", "When the cache is reset, transfers under way end before another one begins."),
    )

    def __init__(self, version: str) -> None:
        self.name = f"vllm-simple-offload {version}"
        self._modules = import_simple_offload(version)

    def open(self, config: StoreConfig) -> None:
        if config.replacement != LRU:
            raise Unsupported(f"{self.name} has no policy {config.replacement}")
        modules, num_host = self._modules, config.num_gpu_blocks + 1
        num_device = max(BLOCKS_PER_SLOT * config.num_gpu_blocks, BLOCKS_AT_LEAST)
        attention = call_with(
            modules.interface.FullAttentionSpec,
            {"block_size": TOKENS, "num_kv_heads": 1, "head_size": 8, "dtype": modules.dtype, "use_mla": False},
        )
        groups = call_with(
            modules.interface.KVCacheConfig,
            {
                "num_blocks": num_device,
                "kv_cache_tensors": [tensor_of(modules.interface, num_device)],
                "kv_cache_groups": [modules.interface.KVCacheGroupSpec(["layer"], attention)],
            },
        )
        options = Options(
            parallel_config=Options(decode_context_parallel_size=1, prefill_context_parallel_size=1, world_size=1),
            model_config=Options(max_model_len=1 << 20),
            scheduler_config=Options(max_num_batched_tokens=1 << 20),
            max_in_flight_tokens=1 << 20,
            num_prefill_lookahead_tokens=0,
        )
        self._manager: Any = modules.manager.SimpleCPUOffloadScheduler(
            options, groups, num_host * BYTES_OF_BLOCK, TOKENS, TOKENS, config.lazy_stores
        )
        self._is_lazy = config.lazy_stores
        self._device: Any = call_with(
            modules.pool.BlockPool,
            {"num_gpu_blocks": num_device, "enable_caching": True, "hash_block_size": TOKENS},
        )
        self._manager.bind_gpu_block_pool(self._device)
        self._host: Any = self._manager.cpu_block_pool
        self._numbers: dict[Any, int] = {}  # key of the pools -> key
        self._events: dict[int, tuple[int, list[int]]] = {}  # store -> event, and its blocks of the device
        self._loads: dict[int, tuple[str, list[Any]]] = {}  # load -> its request, and its blocks of the device
        self._num_requests = 0

    def _request(self, keys: list[int]) -> Any:
        """A new request that has these blocks and one token more, all computed."""
        self._num_requests += 1
        hashes = [key.to_bytes(KEY_BYTES, "big") for key in keys]
        for key, one in zip(keys, hashes, strict=True):
            self._numbers[self._modules.utils.make_block_hash_with_group_id(one, 0)] = key
        return Options(
            request_id=str(self._num_requests),
            block_hashes=hashes,
            num_tokens=len(keys) * TOKENS + 1,
            num_computed_tokens=len(keys) * TOKENS,
            num_output_placeholders=0,
            skip_reading_prefix_cache=False,
        )

    def _finish(self, request: Any) -> None:
        self._manager.request_finished(request, [])

    def _report(self, **parts: Any) -> None:
        self._manager.update_connector_output(Options(**parts))

    # The calls -----------------------------------------------------------------------------------------------------

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        return [self._look_up(key) for key in keys]

    def _look_up(self, key: int) -> str:
        asking = self._request([key])
        num_tokens, _ = self._manager.get_num_new_matched_tokens(asking, 0)
        self._finish(asking)
        return HIT if num_tokens else MISS

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        staged = {number for key, number in self._numbers.items() if key in self._staged()}
        new = [key for key in keys if key not in staged]
        storing = self._request(new)
        blocks = self._device.get_new_blocks(len(new))
        for block, one in zip(blocks, storing.block_hashes, strict=True):
            name = self._modules.utils.make_block_hash_with_group_id(one, 0)
            parts = {"block_hash_with_group_id": name, "block_hash": name, "block": block, "num_tokens": None}
            call_with(self._device._insert_block_hash, parts)
        ids = [block.block_id for block in blocks]
        self._manager.update_state_after_alloc(storing, StubObject(get_block_ids=lambda: (ids,)), 0)
        job = self._manager.build_connector_meta(Step({storing.request_id: ids}))
        self._finish(storing)
        self._device.free_blocks(blocks)
        if self._is_lazy:
            job = self._manager.build_connector_meta(Step({}))
        if job.store_event >= 0:
            self._events[transfer] = job.store_event, job.store_gpu_blocks
        key_of = dict(zip(ids, new, strict=True))
        self._leave_device(set(ids) - set(job.store_gpu_blocks))
        return Staged([key_of[one] for one in job.store_gpu_blocks], [slot - 1 for slot in job.store_cpu_blocks])

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        event, ids = self._events.pop(transfer, (None, ()))
        if event is not None:
            self._report(kv_connector_worker_meta=self._modules.metadata.SimpleCPUOffloadWorkerMetadata({event: 1}))
            self._leave_device(ids)

    def _leave_device(self, ids: Any) -> None:
        for one in ids:
            self._device._maybe_evict_cached_block(self._device.blocks[one])

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int] | Refused:
        loading = self._request(keys)
        num_tokens, _ = self._manager.get_num_new_matched_tokens(loading, 0)
        if num_tokens != len(keys) * TOKENS:
            self._finish(loading)
            return Refused()
        blocks = self._device.get_new_blocks(len(keys))
        ids = [block.block_id for block in blocks]
        self._manager.update_state_after_alloc(
            loading, StubObject(get_block_ids=lambda: (ids,), blocks=(blocks,)), num_tokens
        )
        job = self._manager.build_connector_meta(Step({}))
        self._loads[transfer] = loading.request_id, blocks
        slot_of = dict(zip(job.load_gpu_blocks, job.load_cpu_blocks, strict=True))
        return [slot_of.get(one, 0) - 1 for one in ids]

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        name, blocks = self._loads.pop(transfer)
        self._report(finished_recving={name})
        self._device.free_blocks(blocks)

    def clear(self) -> None:
        """Reset; the copies that are under way end, and then the pool of the host is reset."""
        is_reset = self._manager.reset()
        for transfer in list(self._events):
            self.end_store(transfer, 0, [], [])
        for transfer in list(self._loads):
            self.end_load(transfer, 0, [])
        if not is_reset:
            self._manager.reset()

    # Observing -----------------------------------------------------------------------------------------------------

    def _staged(self) -> dict[Any, int]:
        """The key in the pools, and the slot, of each block that is being written."""
        return {
            self._device.blocks[block].block_hash: slot - 1
            for moved in self._manager._store_event_to_blocks.values()
            for block, slot in zip(moved.gpu_block_ids, moved.cpu_block_ids, strict=True)
        }

    def observe(self) -> StoreObservation:
        entries: dict[int, int] = {}
        refs: dict[int, int] = {}
        for block in self._host.blocks:
            if block.block_hash is not None and not block.is_null:
                key = self._numbers[block.block_hash]
                entries[key], refs[key] = block.block_id - 1, block.ref_cnt
        for name, slot in self._staged().items():
            key = self._numbers[name]
            entries[key], refs[key] = slot, -1
        free = [
            block.block_id - 1 for block in self._host.free_block_queue.get_all_free_blocks() if not block.block_hash
        ]
        return StoreObservation(entries, len(free), refs, free)
