"""vLLM's V1 scheduler, 0.11.0 and later, without a model: what the scripts for it share.

The configuration, the connector and the results of a step are stand-ins, which say by name what is off: what 0.11.0 to
0.33.0 ask of them.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from on_any_engine import StandIn, nothing, same, with_options
from on_vllm import hasher_of, kv_config, spec
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request


def nothing_found(request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
    """A connector has nothing of a request."""
    return 0, False


class Connector:
    """A KV connector.

    finds: how many tokens of a request, behind those that are computed, it has (None: it cannot say yet), and whether
        it loads them while other steps are done.
    sends: whether it sends the KV of a request that is over elsewhere, and keeps the blocks until then.
    """

    requires_kv_delivery = supports_divergent_local_hybrid_hits = False
    bind_kv_cache_manager = bind_gpu_block_pool = on_new_request = update_state_after_alloc = staticmethod(nothing)
    build_connector_meta = update_connector_output = get_kv_connector_stats = staticmethod(nothing)

    def __init__(self, finds: Callable[[Any, int], Any] = nothing_found, sends: bool = False) -> None:
        self.get_num_new_matched_tokens = finds
        self.sends = sends

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        """Whether the blocks are kept, and what the server says about it."""
        return self.sends, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> Any:
        """The same, of a request with several KV cache groups."""
        return self.request_finished(request, block_ids)

    def take_events(self) -> tuple[()]:
        """Nothing is reported to routers."""
        return ()

    def has_pending_block_frees(self) -> bool:
        """Whether it gives blocks back later."""
        return False

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        """The groups whose KV it loads: all."""
        return (0, 1)


def drafting_config(num_drafts: int) -> Any:
    """The configuration of a draft model."""
    is_not = "use_eagle use_eagle_block_drop needs_eagle_block_drop use_dflash use_dspark"
    sizes = {"num_speculative_tokens": num_drafts, "max_num_new_slots_for_drafting": 0}
    sizes |= same(None, "num_speculative_tokens_per_batch_size")
    return StandIn(uses_draft_model=lambda: True, **sizes, **same(nothing, is_not))


def new_scheduler(
    num_blocks: int,
    max_model_len: int = 0,
    block_size: int = 2,
    connector: Any = None,
    specs: tuple[Any, ...] = (),
    is_async: bool = False,
    is_chunked: bool = True,
    is_caching: bool = False,
    num_drafts: int = 0,
    common_block_size: int = 0,
    **changed: Any,
) -> Any:
    """A scheduler of a model that reads text, on one device.

    num_blocks: the blocks of its pool, one of which is the null block.
    max_model_len: as many tokens as the pool holds of one request, if it is not given.
    specs: the kinds of layers; full attention, if none is given.
    num_drafts: the tokens that a draft model proposes in each step.
    common_block_size: a multiple of the block sizes of all layers, where they differ; `block_size` is the smallest one.
    changed: other fields of vLLM's `SchedulerConfig`.
    """
    specs = specs or (spec(block_size=block_size),)
    max_model_len = max_model_len or (num_blocks - 1) // len(specs) * block_size
    scheduling = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 80,
        "max_model_len": max_model_len,
        "policy": "fcfs",
        "async_scheduling": is_async,
        "scheduler_reserve_full_isl": True,
        "prefill_schedule_interval": 1,
        **same(is_chunked, "enable_chunked_prefill chunked_prefill_enabled"),
        **same(0, "long_prefill_token_threshold watermark"),
        **same(None, "max_num_scheduled_tokens max_num_active_seqs long_prefill_token_threshold_adaptive"),
    } | changed
    caching = same(False, "enable_mamba_shared_prefix_checkpoint enable_mamba_fine_grained_prefix_cache")
    caching |= {"num_gpu_blocks": num_blocks, "block_size": block_size, "enable_prefix_caching": is_caching}
    caching |= {"mamba_cache_mode": "align"}
    model = same(False, "is_encoder_decoder is_diffusion uses_mrope uses_xdrope supports_multimodal_inputs")
    model |= same(False, "enable_return_routed_experts return_sampling_mask")
    parallel = same(1, "decode_context_parallel_size prefill_context_parallel_size pipeline_parallel_size world_size")
    parallel |= same(1, "data_parallel_size") | same(0, "data_parallel_rank data_parallel_index")
    transfer = StandIn(kv_load_failure_policy="recompute", is_kv_consumer=True, is_kv_producer=False)
    config = StandIn(
        scheduler_config=StandIn(**scheduling),
        cache_config=StandIn(**caching),
        model_config=StandIn(max_model_len=max_model_len, runner_type="generate", **model),
        parallel_config=StandIn(**parallel),
        observability_config=StandIn(per_request_spec_decode_metrics="none", kv_cache_metrics=False),
        kv_transfer_config=transfer if connector else None,
        ec_manager_config=StandIn(get_encoder_cache_manager_obj=nothing),
        aux_output_config=StandIn(enabled=False),
        max_concurrent_batches=1 + is_async,
        max_in_flight_tokens=scheduling["max_num_batched_tokens"] * (1 + is_async),
        **same(num_drafts, "num_speculative_tokens num_lookahead_tokens"),
        **same(0, "num_prefill_lookahead_tokens num_hash_lookahead_tokens"),
        speculative_config=drafting_config(num_drafts) if num_drafts else None,
        **same(None, "lora_config kv_events_config ec_transfer_config"),
        **same(False, "use_v2_model_runner is_mm_encoder_only is_encoder_only"),
    )
    KVConnectorFactory.create_connector = lambda *positional, **named: connector
    parts = {
        "vllm_config": config,
        "kv_cache_config": kv_config(num_blocks, *specs),
        "structured_output_manager": StandIn(accept_tokens=lambda *given: True, should_advance=nothing),
        "log_stats": False,
        "block_size": common_block_size or block_size,
        "hash_block_size": block_size,
    }
    kind = importlib.import_module("vllm.v1.core.sched.async_scheduler").AsyncScheduler if is_async else Scheduler
    return kind(**{name: parts[name] for name in inspect.signature(Scheduler).parameters if name in parts})


def new_request(name: str, tokens: list[int], max_tokens: int = 4, hash_block_size: int = 0, **more: Any) -> Any:
    """A request that generates `max_tokens` tokens; its blocks have hashes if their size is given."""
    is_not = "logprobs num_logprobs repetition_detection skip_reading_prefix_cache ignore_eos structured_outputs"
    sampling = StandIn(max_tokens=max_tokens, min_tokens=0, stop_token_ids=[], **same(None, is_not))
    sampling.extra_args = sampling.eos_token_id = None
    return with_options(
        Request,
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=sampling,
        block_hasher=hasher_of(hash_block_size) if hash_block_size else None,
        **same(None, "pooling_params eos_token_id") | {"arrival_time": 0.0} | more,
    )


def transferred(**reported: Any) -> Any:
    """What a connector's workers report."""
    names = ("finished_sending", "finished_recving", "failed_recving", "invalid_block_ids")
    sets = {name: set[Any]() for name in names}
    return StandIn(**sets | same(None, "kv_connector_stats kv_connector_worker_meta") | reported)


def loading_in(scheduler: Any) -> list[str]:
    """The requests that wait for KV which a connector loads."""
    return [one.request_id for one in scheduler.requests.values() if one.status.name == "WAITING_FOR_REMOTE_KVS"]


class Tokens(list[int]):
    """The sampled tokens of a request; 0.11.1 and 0.11.2 expect an array."""

    def tolist(self) -> list[int]:
        """The tokens as a list."""
        return self


def end_step(
    scheduler: Any, step: Any, sampled: dict[str, list[int]] | None = None, arrived: Iterable[str] = (), **reported: Any
) -> None:
    """Hand the results of a step back.

    sampled: the tokens of each request; without it, a 0 of each. arrived: the requests whose KV is loaded.
    reported: what else the connector's workers report.
    """
    names = list(step.num_scheduled_tokens)
    is_not = "logprobs pooler_output num_nans_in_logits cudagraph_stats routed_experts routed_experts_dict"
    results = StandIn(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[Tokens((sampled or {}).get(name, [0])) for name in names],
        kv_connector_output=transferred(finished_recving=set(arrived), **reported) if arrived or reported else None,
        **same({}, "prompt_logprobs_dict prompt_token_id_logprobs_dict"),
        **same(None, is_not + " ec_connector_output"),
    )
    scheduler.update_from_output(step, results)


def free_blocks(scheduler: Any) -> set[int]:
    """The ids of the free blocks."""
    queue = scheduler.kv_cache_manager.block_pool.free_block_queue
    return {block.block_id for block in queue.get_all_free_blocks()}
