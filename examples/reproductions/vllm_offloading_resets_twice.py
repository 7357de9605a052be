"""vLLM 0.30.0 to 0.33.0: the OffloadingConnector raises if it is reset twice between two steps.

A request computes a block, and a store of it is under way. `reset_prefix_cache` with `reset_connector=True` resets the
connector, which keeps the store in `_current_batch_jobs_to_flush` for the next step. A second reset before that step
asserts that this set is empty. The engine handles all calls that have arrived before it does a step, so two calls of
`/reset_prefix_cache?reset_external=true` suffice: the second one fails, and the device is reset without the connector.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import OffloadingConnectorScheduler
from vllm.v1.core.sched.output import CachedRequestData
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

BLOCK_SIZE = 16


class Options(SimpleNamespace):
    """A configuration: what is given, and None, which is off, for everything else."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


manager = CPUOffloadingManager(num_chunks=4)
group = SimpleNamespace(group_id=0, tokens_per_block=BLOCK_SIZE, sliding_window_size_in_chunks=None, layer_names=())
spec = SimpleNamespace(
    config=SimpleNamespace(groups=(group,)),
    tokens_per_block=(BLOCK_SIZE,),
    blocks_per_chunk=1,
    tokens_per_hash=BLOCK_SIZE,
    offload_prompt_only=False,
    extra_config={},
    kv_events_config=SimpleNamespace(enable_kv_cache_events=False, self_describing_kv_events=False),
    get_manager=lambda: manager,
)
attention = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=8, dtype=torch.float16)
groups = KVCacheConfig(num_blocks=4, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)])
options = Options(
    cache_config=Options(enable_prefix_caching=True),
    parallel_config=Options(world_size=1, decode_context_parallel_size=1),
)
connector = OffloadingConnectorScheduler(spec, options, groups)
request = Options(
    request_id="first",
    block_hashes=[b"hash of the first block"],
    num_tokens=BLOCK_SIZE + 1,
    num_prompt_tokens=BLOCK_SIZE + 1,
    num_computed_tokens=0,
    is_finished=lambda: False,
)
connector.on_new_request(request)
connector.get_num_new_matched_tokens(request, 0)
step = Options(
    scheduled_new_reqs=[SimpleNamespace(req_id="first", block_ids=([1, 2],))],
    scheduled_cached_reqs=CachedRequestData.make_empty(),
    num_scheduled_tokens={"first": BLOCK_SIZE + 1},
)
jobs = connector.build_connector_meta(step)
print(f"a step of {BLOCK_SIZE + 1} tokens stores: {list(jobs.store_jobs)}")
connector.reset_cache()
try:
    connector.reset_cache()
except AssertionError:
    sys.exit("the second reset raises AssertionError, since the first one waits for the store")
print("the second reset changes nothing")
