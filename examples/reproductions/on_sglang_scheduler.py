"""SGLang's `Scheduler` with its requests, batches, pools and prefix cache, without a model, a device and processes.

The constructor of the scheduler starts a server. So it is left out, and `new_scheduler` sets what the loop reads: full
attention, pages of one token, no overlap, no priorities, and one step after the other.
"""

import inspect
from array import array
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any

import torch
from on_any_engine import StandIn, nothing
from on_sglang_modules import UTILS, import_modules, no

LENGTH_MAX = 256  # tokens of a sequence
SCHEDULER = (
    "srt.beam_search.batch_tail",
    "srt.beam_search.fork",
    "srt.disaggregation.decode_schedule_batch_mixin",
    "srt.dllm.mixin.req",
    "srt.managers.batch_tail",
    "srt.managers.overlap_utils",
    "srt.managers.schedule_batch",
    "srt.managers.schedule_policy",
    "srt.managers.scheduler",
    "srt.mem_cache.allocation",
    "srt.mem_cache.allocation_sizing",
    "srt.mem_cache.allocator.prefill_budget",
    "srt.mem_cache.hiradix_cache",
    "srt.mem_cache.memory_budget",
    "srt.mem_cache.prefill_budget",
    "srt.model_executor.forward_batch_info",
    "srt.session.streaming_session",
)
OFF = (  # attributes of the scheduler that are None: each is an option, or a request in a state that is not reached
    "_pending_chunked_abort_req",
    "chunked_req",
    "dllm_config",
    "dynamic_chunk_sizer",
    "enable_dynamic_chunking",
    "enable_fpm",
    "enable_hicache_storage",
    "enable_hierarchical_cache",
    "enable_hisparse",
    "enable_lmcache",
    "enable_lora",
    "enable_overlap",
    "enable_priority_preemption",
    "enable_priority_scheduling",
    "enable_unified_cache_external_linker",
    "hisparse_coordinator",
    "is_hybrid_swa",
    "is_mixed_chunk",
    "last_batch",
    "min_free_slots_delayer",
    "prefill_delayer",
    "processed_tokens_counter",
    "require_mlp_sync",
    "truncation_align_size",
)


class Settings(StandIn):
    """The settings of a server without options: what is not given is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class Range(namedtuple("Range", ("start", "end"))):
    """The tokens of a prompt that a step computes."""

    @property
    def length(self) -> int:
        return int(self.end - self.start)


def its_batch(batch: Any, **options: Any) -> Any:
    """A function that leaves a batch as it is."""
    return batch


def one_tensor(parts: list[Any], pinned: Any) -> torch.Tensor:
    """The tokens of all requests, one after the other."""
    return torch.tensor([token for part in parts for token in part])


SETTINGS = Settings(
    disaggregation_mode="null",
    disaggregation_decode_retraction_backup="none",
    features=Settings(),
    kv=Settings(),
    mamba=Settings(),
    page_size=1,
    pp_max_micro_batch_size=64,
    pp_size=1,
    schedule_conservativeness=1.0,
    is_config_namespace_published=no,
    enable_mamba_extra_buffer=no,
    enable_mamba_extra_buffer_lazy=no,
)
NAMES = (
    *("context", "disagg", "exec", "global_server_args", "memory", "model", "observability"),
    *("parallel", "schedule", "server_args", "serving", "spec"),
)
GETTERS: dict[str, Callable[..., Any]] = {f"get_{name}": lambda *arguments: SETTINGS for name in NAMES}
TIMES = StandIn(set_metrics_collector=nothing, set_scheduler_recv_time=nothing)
module = import_modules(
    SCHEDULER,
    {
        "srt.managers.scheduler_components.metrics_reporter": {"PrefillStats": StandIn(from_adder=nothing)},
        "srt.metrics.collector": {"TimeStats": lambda **options: TIMES},
        "srt.observability.req_time_stats": {
            "SchedulerReqTimeStats": lambda **options: TIMES,
            "set_schedule_time_batch": nothing,
            "set_time_batch": nothing,
        },
        "srt.runtime_context": {
            **GETTERS,
            "attention_backends": lambda *arguments: ("torch_native", "torch_native"),
            "mamba_extra_buffer_enabled": no,
        },
        "srt.sampling.sampling_batch_info": {
            "SamplingBatchInfo": StandIn(from_schedule_batch=nothing),
        },
        "srt.server_args": GETTERS,
        "srt.utils.common": {**UTILS, "Range": Range, "flatten_arrays_to_pinned_cpu": one_tensor},
    },
)


def new_request(name: str, tokens: Iterable[int], num_new: int = 1, **more: Any) -> Any:
    """A request that generates so many tokens."""
    sampling = Settings(max_new_tokens=num_new, ignore_eos=True, n=1, stop_strs=(), stop_regex_strs=())
    has_arrays = hasattr(module("srt.mem_cache.radix_cache"), "array")
    return module("srt.managers.schedule_batch").Req(
        name, "", array("q", tokens) if has_arrays else list(tokens), sampling, **more
    )


def new_caches(num_slots: int, num_rows: int = 16) -> Any:
    """The table of requests, the allocator of so many slots, and the prefix cache over them."""
    table = module("srt.mem_cache.memory_pool").ReqToTokenPool(num_rows, LENGTH_MAX, "cpu", False)
    allocator = module("srt.mem_cache.allocator").TokenToKVPoolAllocator(num_slots, torch.float16, "cpu", None, False)
    params = module("srt.mem_cache.cache_init_params").CacheInitParams(False, table, allocator, 1)
    if module("srt.mem_cache.unified_cache.tree_core_registry"):
        params.tree_components = (module("srt.mem_cache.unified_cache.components").ComponentType.FULL,)
        cache = module("srt.mem_cache.unified_radix_cache").UnifiedRadixCache(params)
    else:
        cache = module("srt.mem_cache.radix_cache").RadixCache(params)
    return StandIn(req_to_token_pool=table, token_to_kv_pool_allocator=allocator, tree_cache=cache)


def new_scheduler(num_slots: int, chunk: int | None = None, num_rows: int = 16) -> Any:
    """A scheduler over a pool of so many slots. chunk: how many tokens of a prompt a step computes at most."""
    kind = module("srt.managers.scheduler").Scheduler
    scheduler = kind.__new__(kind)
    scheduler.__dict__.update(
        dict.fromkeys(OFF),
        **vars(new_caches(num_slots, num_rows)),
        _prefill_decode_interval_remaining=0,
        beam_coordinator=StandIn(pending_member_rows=lambda *arguments: 0),
        chunked_prefill_size=chunk,
        disaggregation_mode=object(),
        dp_attn_adapter=StandIn(maybe_convert_decode_to_extend=its_batch, maybe_prepare_mlp_sync_batch=its_batch),
        grammar_manager=StandIn(has_waiting_grammars=no),
        load_inquirer=StandIn(_get_num_pending_tokens=nothing),
        max_prefill_bs=64,
        max_prefill_tokens=10_000,
        max_running_requests=num_rows,
        model_config=StandIn(vocab_size=100, is_encoder_decoder=False),
        new_token_ratio_tracker=StandIn(current=0.5, decay_step=nothing, reset=nothing),
        ngram_embedding_manager=StandIn(prepare_for_forward=its_batch),
        page_size=1,
        policy=StandIn(calc_priority=no, shortest_prefill_chunk_limit=nothing),
        prefill_decode_interval=0,
        priority_scheduling_preemption_threshold=0,
        running_batch=module("srt.managers.schedule_batch").ScheduleBatch(reqs=[], batch_is_full=False),
        server_args=SETTINGS,
        spec_algorithm=StandIn(is_none=lambda: True, is_eagle=no, is_dflash=no),
        tp_worker=StandIn(model_runner=StandIn(attn_backend=None, prefill_aware_swa=False)),
        waiting_queue=[],
    )
    return scheduler


def next_batch(scheduler: Any, last: Any = None) -> Any:
    """The batch of the next step; None if nothing is scheduled. last: that of the step before."""
    if len(inspect.signature(type(scheduler).get_next_batch_to_run).parameters) == 1:  # up to 0.5.14
        return scheduler.get_next_batch_to_run()
    plan = scheduler.get_next_batch_to_run(scheduler.running_batch, last)
    scheduler.running_batch = plan.running_batch
    return plan.batch_to_run
