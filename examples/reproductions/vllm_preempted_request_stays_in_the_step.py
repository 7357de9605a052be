"""vLLM V1 0.11.0: with priorities, a step computes a request that was preempted while the step was scheduled.

Two requests run, and take a block each. The second one matters less. A third one, as important as the first, takes the
last block. When it needs another one, the second request is preempted, which has its place in the step already. Its
blocks are freed, and it stays in `num_scheduled_tokens`: the worker computes a token of a request that has no blocks.
Repaired in 0.11.1.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from typing import Any

import torch
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS = 4, 4, 64


class Options:
    """A configuration: what is given, and None, which is off, for everything else."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def with_options(kind: Any, **options: Any) -> Any:
    """Call a class with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


spec = with_options(
    FullAttentionSpec, block_size=BLOCK_SIZE, num_kv_heads=1, head_size=8, dtype=torch.float16, use_mla=False
)
options = Options(
    scheduler_config=Options(
        max_num_seqs=4,
        max_num_batched_tokens=NUM_TOKENS,
        max_model_len=NUM_TOKENS,
        policy="priority",
        async_scheduling=False,
        enable_chunked_prefill=True,
        chunked_prefill_enabled=True,
        long_prefill_token_threshold=0,
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
    observability_config=Options(),
    ec_manager_config=Options(get_encoder_cache_manager_obj=lambda: None),
    num_speculative_tokens=0,
)
scheduler = with_options(
    Scheduler,
    vllm_config=options,
    kv_cache_config=with_options(
        KVCacheConfig,
        num_blocks=NUM_BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    ),
    structured_output_manager=None,
    block_size=BLOCK_SIZE,
)


def request(name: str, num_tokens: int, number: int, priority: int = 0) -> Any:
    """A request whose tokens are all 0."""
    return with_options(
        Request,
        request_id=name,
        prompt_token_ids=[0] * num_tokens,
        sampling_params=Options(max_tokens=4, min_tokens=0, stop_token_ids=[]),
        pooling_params=None,
        eos_token_id=None,
        arrival_time=float(number),
        priority=priority,
    )


requests = [request("first", 2, 0), request("unimportant", 2, 1, priority=2), request("last", 4, 2)]
for arriving in (requests[:2], requests[2:], [], []):
    for one in arriving:
        scheduler.add_request(one)
    step = scheduler.schedule()
    print(f"a step computes {step.num_scheduled_tokens}")
    without_blocks = [
        name for name in step.num_scheduled_tokens if not any(scheduler.kv_cache_manager.get_block_ids(name))
    ]
    if without_blocks:
        sys.exit(f"the step computes {without_blocks}, which have no blocks")
    for one in requests:
        if one.request_id in step.num_scheduled_tokens:
            one.append_output_token_ids(0)
