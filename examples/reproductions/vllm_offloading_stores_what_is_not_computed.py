"""vLLM 0.26.0 to 0.29.0: the OffloadingConnector stores a block with a token that was never computed, and loads it.

The last token that a request generates is sampled and not computed, because the request is over. If it is the last one
of a block, a slot of this block has no KV. `_build_store_jobs` takes the number of tokens of an ended request for the
number of computed ones, so it stores the block too. A prompt that begins with these tokens loads it, and reads a slot
that nobody wrote. From 0.30.0 on the last token is left out.

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

BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS, NUM_STEPS = 2, 8, 8, 20
Token = int
UNWRITTEN = None


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


manager = with_options(CPUOffloadingManager, num_chunks=4, num_blocks=4)
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
    structured_output_manager=Options(
        accept_tokens=lambda *arguments: True, should_advance=lambda *arguments, **named: False
    ),
    log_stats=False,
    block_size=BLOCK_SIZE,
)


device: dict[int, list[Token | None]] = {block: [UNWRITTEN] * BLOCK_SIZE for block in range(NUM_BLOCKS)}
host: dict[int, list[Token | None]] = {}  # the tokens whose KV each block holds, slot by slot
unreported: list[int] = []  # the stores of the step before: each is reported as over with the next step


def hashes_of(request: Any) -> list[bytes]:
    """The hashes of the full blocks that have none yet: a block's is the text of all tokens up to its end."""
    tokens, first = list(request.all_token_ids), len(request.block_hashes)
    return [str(tokens[: (i + 1) * BLOCK_SIZE]).encode() for i in range(first, len(tokens) // BLOCK_SIZE)]


def copy(job: Any, source: dict[int, Any], target: dict[int, Any]) -> None:
    """Do a load or a store."""
    for old, new in zip(job.src_spec.block_ids.tolist(), job.dst_spec.block_ids.tolist(), strict=True):
        target[new] = list(source[old])


def step(sampled: Token) -> bool:
    """Do a step and all copies that it asks for. Returns whether everything that is read was written."""
    output, jobs, is_right = scheduler.schedule(), connector.jobs, True
    for job in jobs.load_jobs.values():
        copy(job, host, device)
        print(f"  request {job.req_id} loads {[device[block] for block in job.dst_spec.block_ids.tolist()]}")
    for name, num_tokens in output.num_scheduled_tokens.items():
        request = scheduler.requests[name]
        (table,) = scheduler.kv_cache_manager.get_block_ids(name)
        stop = request.num_computed_tokens  # those of this step are counted already
        for position, token in enumerate(request.all_token_ids[:stop]):
            slots, place = device[table[position // BLOCK_SIZE]], position % BLOCK_SIZE
            if position >= stop - num_tokens:
                slots[place] = token
            elif slots[place] != token:
                print(f"  request {name} reads token {token} at position {position}, and finds {slots[place]}")
                is_right = False
        print(f"  request {name} computes {num_tokens} tokens, in blocks {table}")
    for job in jobs.store_jobs.values():
        copy(job, device, host)
        print(f"  request {job.req_id} stores {[host[block] for block in job.dst_spec.block_ids.tolist()]}")
    names = list(output.num_scheduled_tokens)
    requests = [scheduler.requests[name] for name in names]
    generated = [[sampled] if one.num_computed_tokens >= one.num_tokens else [] for one in requests]
    done = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys([*jobs.load_jobs, *unreported], 1))
    unreported[:] = jobs.store_jobs
    scheduler.update_from_output(
        output,
        Options(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=generated,
            prompt_logprobs_dict={},
            prompt_token_id_logprobs_dict={},
            kv_connector_output=Options(
                finished_recving=[job.req_id for job in jobs.load_jobs.values()],
                kv_connector_worker_meta=done,
            ),
        ),
    )
    return is_right


def serve(name: str, prompt: list[Token], sampled: Token) -> bool:
    """Serve a request that generates one token. Returns whether all that it has read was written."""
    request = with_options(
        Request,
        request_id=name,
        prompt_token_ids=prompt,
        sampling_params=Options(max_tokens=1, min_tokens=0, stop_token_ids=[]),
        pooling_params=None,
        eos_token_id=None,
        arrival_time=0.0,
        block_hasher=hashes_of,
    )
    scheduler.add_request(request)
    is_right = True
    for number in range(1, NUM_STEPS + 1):
        print(f"step {number} of request {name}, with the prompt {prompt}:")
        is_right &= step(sampled)
        if request.is_finished():
            break
    print("a step without a request:")
    return step(sampled) and is_right  # stores what the request leaves


serve("first", prompt=[1, 2, 3], sampled=4)
if not serve("second", prompt=[1, 2, 3, 4, 5], sampled=6):
    sys.exit("a block is loaded that was stored before its last token was computed")
