"""vLLM 0.30.0 to 0.33.0: with blocks of one token, the OffloadingConnector loads a prompt of one token for ever.

The connector offers all tokens of a prompt, also the last one, which the scheduler must compute again. When the load of
a prompt of one token is over, the scheduler takes the number of computed tokens back from 1 to 0. A request with none
counts as one that was never looked up: the next step looks it up, and loads it again. The request never runs.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import OffloadingConnectorScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.request import Request

BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS, NUM_STEPS = 1, 8, 4, 20


class Options:
    """A configuration: what is given, and None, which is off, for everything else."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Connector:
    """The scheduler's side of the OffloadingConnector; whatever else is asked of a connector answers nothing."""

    requires_kv_delivery = supports_divergent_local_hybrid_hits = False

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.jobs: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheduler, name, lambda *arguments: None)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return (0,)

    def has_pending_block_frees(self) -> bool:
        return False

    def get_external_cache_hit_sources(self, request: Any, num_tokens: int) -> None: ...
    def get_kv_connector_stats(self) -> None: ...
    def take_events(self) -> tuple[()]:
        return ()

    def request_finished(self, request: Any, block_ids: list[int]) -> Any:
        return self.scheduler.request_finished(request)

    def build_connector_meta(self, output: Any) -> Any:
        self.jobs = self.scheduler.build_connector_meta(output)
        return self.jobs


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
        world_size=1,
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


manager = CPUOffloadingManager(num_chunks=4)
group = SimpleNamespace(group_id=0, tokens_per_block=BLOCK_SIZE, sliding_window_size_in_chunks=None, layer_names=())
offloading = SimpleNamespace(
    config=SimpleNamespace(groups=(group,)),
    tokens_per_block=(BLOCK_SIZE,),
    blocks_per_chunk=1,
    tokens_per_hash=BLOCK_SIZE,
    offload_prompt_only=False,
    extra_config={},
    kv_events_config=SimpleNamespace(enable_kv_cache_events=False, self_describing_kv_events=False),
    get_manager=lambda: manager,
)
groups = with_options(
    KVCacheConfig,
    num_blocks=NUM_BLOCKS,
    kv_cache_tensors=[],
    kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
)
connector = Connector(OffloadingConnectorScheduler(offloading, options, groups))
KVConnectorFactory.create_connector = lambda *positional, **named: connector
scheduler = with_options(
    Scheduler,
    vllm_config=options,
    kv_cache_config=groups,
    structured_output_manager=Options(accept_tokens=lambda *arguments: True, should_advance=lambda *arguments: False),
    log_stats=False,
    block_size=BLOCK_SIZE,
)


def num_steps_of(name: str) -> int | None:
    """Serve a request of one token, every copy over at once; after how many steps it was done, or None if never."""
    request = with_options(
        Request,
        request_id=name,
        prompt_token_ids=[7],
        sampling_params=Options(max_tokens=1, min_tokens=0, stop_token_ids=[]),
        pooling_params=None,
        eos_token_id=None,
        arrival_time=0.0,
        block_hasher=lambda request: [b"hash of token 7"] * (request.num_tokens - len(request.block_hashes) > 0),
    )
    scheduler.add_request(request)
    for step in range(1, NUM_STEPS + 1):
        output = scheduler.schedule()
        jobs = connector.jobs
        loaded = [job.req_id for job in jobs.load_jobs.values()]
        done = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys([*jobs.load_jobs, *jobs.store_jobs], 1))
        names = list(output.num_scheduled_tokens)
        scheduler.update_from_output(
            output,
            Options(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=[[1] for _ in names],
                prompt_logprobs_dict={},
                prompt_token_id_logprobs_dict={},
                kv_connector_output=Options(finished_recving=loaded, kv_connector_worker_meta=done),
            ),
        )
        print(f"{name}, step {step}: computes {output.num_scheduled_tokens}, loads {loaded}")
        if request.is_finished():
            scheduler.schedule()  # stores what the request leaves
            last = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(connector.jobs.store_jobs, 1))
            connector.scheduler.update_connector_output(Options(kv_connector_worker_meta=last))
            return step
    return None


num_steps_of("first")
if num_steps_of("second") is None:
    sys.exit(f"after {NUM_STEPS} steps the second request is not done: every step loads it again")
