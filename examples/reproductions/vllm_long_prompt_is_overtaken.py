"""vLLM V1 0.11.1 and 0.11.2: without chunked prompts, a long prompt waits as long as shorter ones arrive.

Requests are served in the order of arrival. A prompt that is longer than what is left of a step's tokens cannot be
computed in this step. The scheduler passes over it, and admits the shorter prompts behind it; if others arrive all the
time, the long one never comes. Repaired in 0.12.0: the step ends there.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from typing import Any

import torch
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS = 16, 32, 64


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
        policy="fcfs",
        async_scheduling=False,
        enable_chunked_prefill=False,
        chunked_prefill_enabled=False,
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


scheduler.add_request(request("short", 1, 0))
scheduler.add_request(request("long", NUM_TOKENS, 1))
scheduler.add_request(request("later", 1, 2))
step = scheduler.schedule()
print(f"a step computes {step.num_scheduled_tokens}")
if "later" in step.num_scheduled_tokens and "long" not in step.num_scheduled_tokens:
    sys.exit("a request was admitted that arrived after one that waits")
