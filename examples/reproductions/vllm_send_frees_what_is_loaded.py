"""vLLM V1 0.33.0: two transfers of one aborted request: the end of the send frees what is loaded, or stops the engine.

A request waits for KV that a connector loads asynchronously, and is aborted. The connector answers that the KV of the
request is to be sent elsewhere, so two transfers use its blocks. The send ends first: the blocks are freed, and the
load still writes to them. If both end in one step, the end of the load frees the blocks and forgets the request, and
then an assertion about it fails, which stops the engine (issue 46240).

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request, RequestStatus

BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS = 16, 8, 64


class Options:
    """A configuration: what is given, and None, which is off, for everything else."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Connector(Options):
    """A connector that can load the first two blocks of every prompt, and has not finished any load."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return 2 * BLOCK_SIZE - num_computed_tokens, True

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return True, None

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None: ...
    def build_connector_meta(self, output: Any) -> None: ...
    def on_new_request(self, request: Any) -> None: ...
    def bind_kv_cache_manager(self, manager: Any) -> None: ...
    def update_connector_output(self, output: Any) -> None: ...
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
        max_num_seqs=4,
        max_num_batched_tokens=NUM_TOKENS,
        max_model_len=NUM_TOKENS,
        policy="fcfs",
        async_scheduling=False,
        enable_chunked_prefill=True,
        chunked_prefill_enabled=True,
        long_prefill_token_threshold=0,
        watermark=0.0,
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


def aborted_while_loading() -> tuple[Any, Any, list[int]]:
    """A scheduler, a request that is aborted while a connector loads its KV, and the blocks that the load writes to."""
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
        log_stats=False,
        block_size=BLOCK_SIZE,
    )
    request = with_options(
        Request,
        request_id="first",
        prompt_token_ids=list(range(40)),
        sampling_params=Options(max_tokens=4, min_tokens=0, stop_token_ids=[]),
        pooling_params=None,
        eos_token_id=None,
        arrival_time=0.0,
    )
    scheduler.add_request(request)
    scheduler.schedule()
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS, request.status
    loading = [block for group in scheduler.kv_cache_manager.get_block_ids(request.request_id) for block in group]
    scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
    return scheduler, request, loading


faults = []
scheduler, request, loading = aborted_while_loading()
print(f"the connector loads into blocks {loading}")
scheduler._update_from_kv_xfer_finished(Options(finished_sending={request.request_id}, finished_recving=set()))
free = {block.block_id for block in scheduler.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()}
print(f"the request is aborted, and its KV is sent; the free blocks are {sorted(free)}")
if free & set(loading):
    faults.append(f"blocks {sorted(free & set(loading))} are free, and the load still writes to them")

scheduler, request, _ = aborted_while_loading()
both = {request.request_id}
try:
    scheduler._update_from_kv_xfer_finished(Options(finished_sending=both, finished_recving=both))
except AssertionError:
    faults.append("the load and the send are over in one step: AssertionError")
if faults:
    sys.exit("; ".join(faults))
