"""vLLM V1, 0.24.0 to 0.29.0: with a KV connector, a full pool preempts requests whose blocks it does not get.

With asynchronous scheduling and a connector that loads KV, the blocks of a request that a step under way may still
write are given back after that step. A running request needs a block and there is none. The request of the lowest
priority is preempted, its blocks are still kept, and so the next one is preempted, and the next, until the request
that needs the block preempts itself. All of them compute their prompts again, although one of their blocks would have
been enough. From 0.30.0 on, the scheduler waits for the step instead.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

NUM_REQUESTS = 4
BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS = 2, NUM_REQUESTS + 2, 8  # one block is the null block, and one is left


class Options:
    """A configuration: what is given, and None, which is off, for everything else."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Connector:
    """A connector that has nothing to load."""

    requires_kv_delivery = supports_divergent_local_hybrid_hits = False

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return 0, False

    def take_events(self) -> tuple[()]:
        return ()

    def has_pending_block_frees(self) -> bool:
        return False


def with_options(kind: Any, **options: Any) -> Any:
    """Call a class with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


KVConnectorFactory.create_connector = lambda *positional, **named: Connector()
spec = with_options(
    FullAttentionSpec, block_size=BLOCK_SIZE, num_kv_heads=1, head_size=8, dtype=torch.float16, use_mla=False
)
options = Options(
    scheduler_config=Options(
        max_num_seqs=NUM_REQUESTS,
        max_num_batched_tokens=80,
        max_model_len=NUM_TOKENS,
        policy="fcfs",
        async_scheduling=True,
        enable_chunked_prefill=True,
        chunked_prefill_enabled=True,
        long_prefill_token_threshold=0,
        watermark=0.0,
        scheduler_reserve_full_isl=True,
    ),
    cache_config=Options(num_gpu_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, enable_prefix_caching=False),
    model_config=Options(max_model_len=NUM_TOKENS, runner_type="generate"),
    parallel_config=Options(
        decode_context_parallel_size=1,
        prefill_context_parallel_size=1,
        pipeline_parallel_size=1,
        data_parallel_rank=0,
        data_parallel_index=0,
    ),
    observability_config=Options(per_request_spec_decode_metrics="none"),
    kv_transfer_config=Options(kv_load_failure_policy="recompute", is_kv_consumer=True),
    ec_manager_config=Options(get_encoder_cache_manager_obj=lambda: None),
    num_speculative_tokens=0,
    max_concurrent_batches=2,
    aux_output_config=Options(enabled=False),
    num_lookahead_tokens=0,
    num_prefill_lookahead_tokens=0,
)
scheduler = AsyncScheduler(
    vllm_config=options,
    kv_cache_config=with_options(
        KVCacheConfig,
        num_blocks=NUM_BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    ),
    structured_output_manager=Options(accept_tokens=lambda *arguments: True, should_advance=lambda *arguments: False),
    log_stats=False,
    block_size=BLOCK_SIZE,
)


def request(number: int) -> Any:
    """A request whose prompt fills a block."""
    return with_options(
        Request,
        request_id=str(number),
        prompt_token_ids=[number] * BLOCK_SIZE,
        sampling_params=Options(max_tokens=4, min_tokens=0, stop_token_ids=[]),
        pooling_params=None,
        eos_token_id=None,
        arrival_time=float(number),
    )


def num_free() -> int:
    free: int = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    return free


for number in range(NUM_REQUESTS):
    scheduler.add_request(request(number))
print(f"step 0 computes {scheduler.schedule().num_scheduled_tokens}, and is under way; free blocks: {num_free()}")
was_free = num_free()
computed = scheduler.schedule().num_scheduled_tokens  # each of these requests took a block
preempted = [one.request_id for one in scheduler.requests.values() if one.status.name == "PREEMPTED"]
print(f"step 1 computes {computed}; preempted: {preempted}; free blocks: {num_free()}")
if preempted and num_free() + len(computed) == was_free:
    sys.exit(f"{len(preempted)} requests lost what they had computed, and no block became free")
