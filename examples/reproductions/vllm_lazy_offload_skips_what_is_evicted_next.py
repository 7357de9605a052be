"""vLLM 0.29.0 to 0.33.0: the SimpleCPUOffloadConnector's lazy mode skips the blocks that are evicted next.

In each step the lazy mode walks the device's queue of free blocks, in the order of eviction, from the block to which
it came before (`_cursor` in `_prepare_lazy_store_specs`), and stores what the host does not have. A block that is
stored is taken out of the queue, and returns to its end when the copy is over. If that is so before the next step,
the cursor is at the end of the queue: it counts as outdated only while somebody holds its block. So the next steps
find nothing behind it. The blocks at the head are evicted, and the host never got them, although it has room.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

BLOCK_SIZE, DEVICE_BLOCKS, HOST_BLOCKS, BYTES = 16, 10, 32, 1024  # block 0 of the device is the null block
TOKENS_OF_A_STEP = 24  # of which a step keeps twice as many blocks ready for eviction: four


class Options(SimpleNamespace):
    """A configuration: what is given, and None, which is off, for everything else."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def with_options(kind: Any, **options: Any) -> Any:
    """Call something with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


tensor = with_options(
    KVCacheTensor,
    size=DEVICE_BLOCKS * BYTES,
    shared_by=["layer"],
    layers=[],
    layer_stride=0,
    block_stride=BYTES,
    offset=0,
)
attention = with_options(
    FullAttentionSpec, block_size=BLOCK_SIZE, num_kv_heads=1, head_size=8, dtype=torch.float16, use_mla=False
)
groups = with_options(
    KVCacheConfig,
    num_blocks=DEVICE_BLOCKS,
    kv_cache_tensors=[tensor],
    kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
)
options = Options(
    parallel_config=Options(decode_context_parallel_size=1, prefill_context_parallel_size=1, world_size=1),
    model_config=Options(max_model_len=1024),
    scheduler_config=Options(max_num_batched_tokens=TOKENS_OF_A_STEP),
    max_in_flight_tokens=1024,
    num_prefill_lookahead_tokens=0,
)
connector = SimpleCPUOffloadScheduler(options, groups, (HOST_BLOCKS + 1) * BYTES, BLOCK_SIZE, BLOCK_SIZE, True)
device = with_options(BlockPool, num_gpu_blocks=DEVICE_BLOCKS, enable_caching=True, hash_block_size=BLOCK_SIZE)
connector.bind_gpu_block_pool(device)


blocks = device.get_new_blocks(DEVICE_BLOCKS - 1)
for number, block in enumerate(blocks):
    device._insert_block_hash(make_block_hash_with_group_id(b"%d" % number, 0), block, num_tokens=None)
device.free_blocks(blocks)  # the requests are over: all blocks are cached and free
step = Options(finished_req_ids=set())
stored: set[int] = set()
for number in range(5):
    jobs = connector.build_connector_meta(step)
    stored.update(jobs.store_gpu_blocks)
    queue = [block.block_id for block in device.free_block_queue.get_all_free_blocks()]
    print(f"step {number} stores {jobs.store_gpu_blocks}; the blocks that are evicted next are {queue[:4]}")
    if jobs.store_gpu_blocks:
        done = SimpleCPUOffloadWorkerMetadata({jobs.store_event: 1})
        connector.update_connector_output(Options(kv_connector_worker_meta=done))
lost = [block.block_id for block in device.get_new_blocks(4) if block.block_id not in stored]
print(f"four blocks of the device are given away; the host does not have {lost}")
if lost:
    sys.exit("these were never stored, although the host has room")
