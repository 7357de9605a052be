"""vLLM 0.29.0 to 0.33.0: the SimpleCPUOffloadConnector evicts a block of the prompt that it is about to store.

A prompt of three blocks is stored to a host of three blocks; the first block is there already, and is the oldest. The
connector skips it as cached (`_classify_store_candidate`) and does not hold it. For the other two it takes two blocks
of the host, and one of these is the block that was skipped. So the host keeps the end of the prompt without its
beginning: the next look-up of the prompt finds nothing. The connector has counted the first block as stored, and does
not store it again. `CPUOffloadingManager` had this fault in `prepare_store` until pull request 35846.

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

BLOCK_SIZE, DEVICE_BLOCKS, HOST_BLOCKS, BYTES = 16, 32, 3, 1024


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
    scheduler_config=Options(max_num_batched_tokens=1024),
    max_in_flight_tokens=1024,
    num_prefill_lookahead_tokens=0,
)
connector = SimpleCPUOffloadScheduler(options, groups, (HOST_BLOCKS + 1) * BYTES, BLOCK_SIZE, BLOCK_SIZE)
device = with_options(BlockPool, num_gpu_blocks=DEVICE_BLOCKS, enable_caching=True, hash_block_size=BLOCK_SIZE)
connector.bind_gpu_block_pool(device)


def request_of(name: str, *hashes: bytes) -> Any:
    """A request whose blocks have these hashes, and one token more; all of it is computed."""
    num_tokens = len(hashes) * BLOCK_SIZE
    return Options(
        request_id=name,
        block_hashes=list(hashes),
        num_tokens=num_tokens + 1,
        num_computed_tokens=num_tokens,
        num_output_placeholders=0,
        skip_reading_prefix_cache=False,
    )


def store(name: str, *hashes: bytes) -> int:
    """Compute the blocks of a request, do the step that stores them, and end the copy; how many blocks it stores."""
    request, blocks = request_of(name, *hashes), device.get_new_blocks(len(hashes))
    for block, one in zip(blocks, hashes, strict=True):
        device._insert_block_hash(make_block_hash_with_group_id(one, 0), block, num_tokens=None)
    ids = [block.block_id for block in blocks]
    connector.update_state_after_alloc(request, SimpleNamespace(get_block_ids=lambda: (ids,)), 0)
    step = Options(
        scheduled_new_reqs=[SimpleNamespace(req_id=name, block_ids=(ids,))],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], new_block_ids=[], resumed_req_ids=set()),
        num_scheduled_tokens={name: 1},
        finished_req_ids=set(),
    )
    jobs = connector.build_connector_meta(step)
    done = SimpleCPUOffloadWorkerMetadata({jobs.store_event: 1})
    connector.update_connector_output(Options(kv_connector_worker_meta=done))
    return len(jobs.store_gpu_blocks)


def num_found(*hashes: bytes) -> int:
    """How many tokens of a prompt with these blocks a look-up finds in the host."""
    request = request_of("looks up", *hashes)
    num_tokens: int = connector.get_num_new_matched_tokens(request, 0)[0]
    connector.request_finished(request, [])
    return num_tokens


prompt = (b"first", b"second", b"third")
store("one block", prompt[0])
store("others", b"x", b"y")
stored = store("whole prompt", *prompt)
print(f"the host has {HOST_BLOCKS} blocks; of the prompt of 3 blocks, the first of which is there, {stored} are stored")
found = num_found(*prompt)
print(f"a look-up of this prompt finds {found} tokens")
if not found:
    sys.exit("the store of the second and the third block has evicted the first one, which it skipped as cached")
