"""vLLM V1, 0.29.0 and 0.30.0: a request whose KV has arrived waits for ever behind one that was looked up again.

A KV connector cannot say yet how much it has of a request, which is to be looked up again (as with the
OffloadingConnector while the KV is still being stored). Meanwhile the KV of another request is loaded. Both wait in the
queue of requests that were skipped, in this order. The first one could be loaded now, but what is free is reserved for
the second one, so the loop over the queue ends there, in every step again. The second one could run at once, but it is
never reached. From 0.31.0 on, requests that hold blocks have a queue of their own, which comes first.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS = 2, 3, 3  # one of the blocks is the null block
NUM_STEPS = 40


class Options:
    """A configuration: what is given, and None, which is off, for everything else."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Connector:
    """A connector that loads the first block of each request; of the request "again" it knows that later."""

    requires_kv_delivery = supports_divergent_local_hybrid_hits = False
    num_asked = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        if request.request_id == "again":
            self.num_asked += 1
        is_known = request.request_id != "again" or self.num_asked > 1
        return (BLOCK_SIZE, True) if is_known else (None, False)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return False, None

    def take_events(self) -> tuple[()]:
        return ()

    def has_pending_block_frees(self) -> bool:
        return False

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return (0,)


def with_options(kind: Any, **options: Any) -> Any:
    """Call a class with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


KVConnectorFactory.create_connector = lambda *positional, **named: Connector()
spec = with_options(
    FullAttentionSpec, block_size=BLOCK_SIZE, num_kv_heads=1, head_size=8, dtype=torch.float16, use_mla=False
)
options = Options(
    scheduler_config=Options(
        max_num_seqs=1,
        max_num_batched_tokens=80,
        max_model_len=NUM_TOKENS,
        policy="fcfs",
        async_scheduling=False,
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
    kv_transfer_config=Options(kv_load_failure_policy="recompute"),
    ec_manager_config=Options(get_encoder_cache_manager_obj=lambda: None),
    num_speculative_tokens=0,
    max_concurrent_batches=1,
    aux_output_config=Options(enabled=False),
    num_lookahead_tokens=0,
    num_prefill_lookahead_tokens=0,
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
    structured_output_manager=Options(accept_tokens=lambda *arguments: True, should_advance=lambda *arguments: False),
    log_stats=False,
    block_size=BLOCK_SIZE,
)


def request(name: str, num_tokens: int, max_tokens: int) -> Any:
    """A request whose tokens are all 0."""
    return with_options(
        Request,
        request_id=name,
        prompt_token_ids=[0] * num_tokens,
        sampling_params=Options(max_tokens=max_tokens, min_tokens=0, stop_token_ids=[]),
        pooling_params=None,
        eos_token_id=None,
        arrival_time=0.0,
    )


scheduler.add_request(request("again", BLOCK_SIZE, 1))
scheduler.add_request(request("loaded", NUM_TOKENS, 1))
for number in range(NUM_STEPS):
    step = scheduler.schedule()
    names = list(step.num_scheduled_tokens)
    waiting = [one.request_id for one in scheduler.requests.values() if one.status.name == "WAITING_FOR_REMOTE_KVS"]
    if number < 6:
        print(f"step {number} computes {step.num_scheduled_tokens}, loads {waiting}")
    arrived = [name for name in waiting if name not in scheduler.finished_recving_kv_req_ids]
    scheduler.update_from_output(
        step,
        Options(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[0] for _ in names],
            prompt_logprobs_dict={},
            prompt_token_id_logprobs_dict={},
            kv_connector_output=Options(finished_sending=[], finished_recving=arrived) if arrived else None,
        ),
    )
left = sorted(scheduler.requests)
print(f"after {NUM_STEPS} steps, these requests are not over: {left}")
if left:
    sys.exit("nothing is scheduled any more, and the KV of the request that was loaded is there")
