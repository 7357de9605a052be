"""The scheduler's side of vLLM's SimpleCPUOffloadConnector, 0.24.0 and later: what the scripts for it share."""

from typing import Any

from on_any_engine import StandIn, same, with_options
from on_vllm import kv_config, spec
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.kv_cache_interface import KVCacheTensor
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

BLOCK_SIZE, BYTES = 16, 1024


class Offload:
    """The connector, and the pool of the device's blocks; block 0 is the null block."""

    def __init__(self, num_blocks: int, num_host_blocks: int, max_tokens: int = 1024, is_lazy: bool = False) -> None:
        layout = {"layers": [], "layer_stride": 0, "block_stride": BYTES, "offset": 0}
        tensor = with_options(KVCacheTensor, size=num_blocks * BYTES, shared_by=["layer"], **layout)
        parallel = same(1, "decode_context_parallel_size prefill_context_parallel_size world_size")
        options = StandIn(
            parallel_config=StandIn(**parallel),
            model_config=StandIn(max_model_len=1024),
            scheduler_config=StandIn(max_num_batched_tokens=max_tokens),
            max_in_flight_tokens=1024,
            num_prefill_lookahead_tokens=0,
            **same(None, "kv_events_config speculative_config"),
        )
        groups, size = kv_config(num_blocks, spec(block_size=BLOCK_SIZE), kv_cache_tensors=[tensor]), BLOCK_SIZE
        self.connector = SimpleCPUOffloadScheduler(options, groups, (num_host_blocks + 1) * BYTES, size, size, is_lazy)
        self.device = with_options(BlockPool, num_gpu_blocks=num_blocks, enable_caching=True, hash_block_size=size)
        self.connector.bind_gpu_block_pool(self.device)

    def computed(self, *hashes: bytes) -> list[Any]:
        """Blocks of the device that a request has computed; they are cached by these hashes."""
        blocks: list[Any] = self.device.get_new_blocks(len(hashes))
        for block, one in zip(blocks, hashes, strict=True):
            self.device._insert_block_hash(make_block_hash_with_group_id(one, 0), block, num_tokens=None)
        return blocks

    def step(self, **scheduled: Any) -> Any:
        """Do a step. Returns the copies that it begins; they are over before the next one."""
        nobody = {"finished_req_ids": set(), **same(None, "preempted_req_ids kv_connector_block_state")}
        jobs = self.connector.build_connector_meta(StandIn(**nobody, **scheduled))
        if jobs.store_gpu_blocks:
            done = SimpleCPUOffloadWorkerMetadata({jobs.store_event: 1})
            self.connector.update_connector_output(StandIn(finished_recving=None, kv_connector_worker_meta=done))
        return jobs
