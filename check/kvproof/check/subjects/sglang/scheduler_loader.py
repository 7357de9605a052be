"""SGLang's own scheduler, importable with torch and numpy, without a device, a tokenizer, other processes and metrics.

Real are the scheduler, its batches, requests and policies, what a result does to a request, the allocation for a
batch, the invariant checker, and what `loader` imports. Every other module is a stub in which each name is a type of
its own that cannot be instantiated, called or read: a part of the engine that is used and not stood in for fails by
its name. What is used when the modules are imported, or while the scheduler runs, is named below.
"""

import inspect
import logging
from collections import namedtuple
from itertools import chain
from pathlib import Path
from typing import Any

from kvproof.check.subjects.loading import download, stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.sglang import loader
from kvproof.check.subjects.sglang.scheduler_fakes import AbortReq, Sampling, Times
from kvproof.check.subjects.sglang.scheduler_stubs import Stubs, seal

MEM_CACHE = loader.MEM_CACHE
CORE = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"  # of the unified tree, from 0.5.20 on in Python and in Rust
CONSERVATIVENESS = 0.3  # as servers are set that shall admit much, and retract some

REAL = (
    *(f"srt.mem_cache.{name}" for name in loader.REAL),
    *loader.ALSO_REAL,
    "srt.beam_search.batch_tail",
    "srt.beam_search.fork",
    "srt.disaggregation.decode_schedule_batch_mixin",
    "srt.disaggregation.utils",
    "srt.dllm.mixin.req",
    "srt.environ",
    "srt.managers.batch_tail",
    "srt.managers.overlap_utils",
    "srt.managers.schedule_batch",
    "srt.managers.schedule_policy",
    "srt.managers.scheduler",
    "srt.managers.scheduler_components.batch_result_processor",
    "srt.managers.scheduler_components.invariant_checker",
    "srt.managers.scheduler_components.new_token_ratio_tracker",
    "srt.managers.scheduler_components.pool_stats_observer",
    "srt.mem_cache.allocation",
    "srt.mem_cache.allocation_sizing",
    "srt.mem_cache.allocator.prefill_budget",
    "srt.mem_cache.allocator.swa",
    "srt.mem_cache.base_swa_memory_pool",
    "srt.mem_cache.memory_budget",
    "srt.mem_cache.prefill_budget",
    "srt.model_executor.forward_batch_info",
)
OUTSIDE = (  # packages that the engine imports around its scheduler
    "PIL",
    "aiohttp",
    "einops",
    "fastapi",
    "orjson",
    "prometheus_client",
    "psutil",
    "pybase64",
    "pydantic",
    "requests",
    "setproctitle",
    "transformers",
    "uvloop",
    "xgrammar",
    "zmq",
)


def yes(*arguments: Any) -> bool:
    """A stub function that says that something is there."""
    return True


class Settings(StubObject):
    """The settings of a server without options that change what is driven; one that is missing fails by its name."""


FEATURES = StubObject(
    enable_encoder_swa_bounded_replay=False, enable_return_hidden_states=False, return_hidden_states_mode=None
)
SETTINGS = Settings(
    **vars(loader.plain_settings()),
    schedule_conservativeness=CONSERVATIVENESS,
    enable_flexkv=False,
    enable_hisparse=False,
    enable_metrics=False,
    pp_size=1,
    pp_max_micro_batch_size=1 << 10,
    prefill_max_requests=None,
    radix_eviction_policy="lru",
    retraction_policy="length",
    schedule_low_priority_values_first=True,
    schedule_policy="fcfs",
    attention_backend="torch_native",
    attn=StubObject(backend="torch_native"),
    disable_overlap_schedule=False,
    enable_mamba_extra_buffer=no,
    enable_mamba_extra_buffer_lazy=no,
    attn_dcp_size=1,
    dcp_enabled=False,
    dcp_size=1,
    weight_version=None,
    decode_log_interval=1 << 30,
    disaggregation_decode_enable_offload_kvcache=False,
    is_config_namespace_published=yes,
    features=FEATURES,
    mamba=StubObject(enable_mamba_extra_buffer=False, enable_mamba_extra_buffer_lazy=False),
)
GIVES = (
    "get_context",
    "get_device",
    "get_exec",
    "get_global_server_args",
    "get_lora",
    "get_mm",
    "get_parallel",
    "get_schedule",
    *loader.SETTINGS,
)


def number_of(request: Any) -> int:
    """A hash that does not depend on addresses, so that sets of requests have the same order each time."""
    return int(request.rid)


def settings(*arguments: Any) -> Settings:
    """What any part of the engine gets as its settings."""
    return SETTINGS


def backends(*arguments: Any) -> tuple[str, str]:
    """The attention backends of prefill and decode: those that run anywhere."""
    return "torch_native", "torch_native"


class Range(namedtuple("Range", "start end")):
    """Where a chunk begins and ends, in releases that keep it in such a tuple."""

    @property
    def length(self) -> int:
        return int(self.end - self.start)


def flattened(arrays: list[Any], pinned: bool) -> Any:
    """The numbers of all arrays as one tensor."""
    import torch

    return torch.tensor([*chain.from_iterable(arrays)], dtype=torch.int64)


UTILS = loader.UTILS | {"Range": Range, "flatten_arrays_to_pinned_cpu": flattened}
CONTEXT: dict[str, Any] = dict.fromkeys(GIVES, settings) | {
    "attention_backends": backends,
    "get_flags": settings,
    "mamba_extra_buffer_enabled": no,
    "mamba_extra_buffer_lazy_enabled": no,
}
STAND_INS: dict[str, dict[str, Any]] = {
    **{name: names for name, names in loader.STAND_INS.items() if name != "srt.environ"},
    "srt.layers.attention.dsa.utils": {"is_dsa_prefill_cp_in_seq_split": no},
    "srt.layers.utils.cp_utils": {"is_prefill_context_parallel_enabled": no},
    "srt.managers.io_struct": {"AbortReq": AbortReq},
    "srt.managers.scheduler_components.metrics_reporter": {"PrefillStats": StubObject(from_adder=nothing)},
    "srt.observability.req_time_stats": {
        "SchedulerReqTimeStats": Times,
        "set_schedule_time_batch": nothing,
        "set_time_batch": nothing,
    },
    "srt.runtime_context": CONTEXT,
    "srt.sampling.sampling_batch_info": {"SamplingBatchInfo": Sampling},
    "srt.server_args": CONTEXT,
    "srt.state_capturer.indexer_topk": {"get_global_indexer_capturer": nothing},
    "srt.state_capturer.routed_experts": {"get_global_experts_capturer": nothing},
    "srt.utils": UTILS,
    "srt.utils.weight_versions": {"compute_weight_version_spans": nothing},
    "srt.utils.common": UTILS,
}


def import_scheduler(version: str, cache: Path | None = None) -> StubObject:
    """Import what the adapter uses of a release, from its sources. Raises EngineError if it was not downloaded."""
    root = download.find(loader.PACKAGE, version, cache) / loader.PACKAGE
    for package in OUTSIDE:
        stub_modules.provide({package: {"__getattr__": Stubs(package, None).__getattr__}})
    submodule = loader.mount(root, [name for name in REAL if loader.is_there(root, name)], STAND_INS, Stubs)

    def module(name: str) -> Any:
        return submodule(name) if loader.is_there(root, name) else None

    scheduler, batch = module("srt.managers.scheduler"), module("srt.managers.schedule_batch")
    memory, allocator = module(f"{MEM_CACHE}.memory_pool"), module(f"{MEM_CACHE}.allocator")
    components = "srt.managers.scheduler_components"
    radix = module(f"{MEM_CACHE}.radix_cache")
    is_unified = loader.is_there(root, f"{MEM_CACHE}.unified_cache.tree_core_registry")
    unified = module(f"{MEM_CACHE}.unified_radix_cache") if is_unified else None
    parts = module(f"{MEM_CACHE}.unified_cache.components")
    chunk = module(f"{MEM_CACHE}.chunk_cache")
    variables = module("srt.environ").envs
    if hasattr(variables, CORE):
        getattr(variables, CORE).set("python")
    import torch

    def pool_of(num_tokens: int, size: int) -> Any:
        if size == 1:
            return allocator.TokenToKVPoolAllocator(num_tokens, torch.float16, "cpu", None, False)
        return allocator.PagedTokenToKVPoolAllocator(num_tokens, size, torch.float16, "cpu", None, False)

    def tree_of(params: Any, caching: bool) -> Any:
        if chunk is not None and not caching:
            return chunk.ChunkCache(params)
        if unified is not None:
            params.tree_components = (parts.ComponentType.FULL,)
            return unified.UnifiedRadixCache(params)
        return radix.RadixCache(params)

    release = StubObject(
        Scheduler=scheduler.Scheduler,
        Req=type("Req", (batch.Req,), {"__hash__": number_of, "__module__": batch.__name__}),
        ScheduleBatch=batch.ScheduleBatch,
        RadixKey=radix.RadixKey,
        has_arrays=hasattr(radix, "array"),
        has_plans=len(inspect.signature(scheduler.Scheduler.get_next_batch_to_run).parameters) > 1,  # from 0.5.16 on
        SchedulePolicy=module("srt.managers.schedule_policy").SchedulePolicy,
        NewTokenRatioTracker=module(f"{components}.new_token_ratio_tracker").NewTokenRatioTracker,
        settings=SETTINGS,
        has_large_pages="use_triton_kernels" in inspect.getsource(allocator.PagedTokenToKVPoolAllocator),  # from 0.5.22
        BatchResultProcessor=module(f"{components}.batch_result_processor").SchedulerBatchResultProcessor,
        no_disaggregation=scheduler.DisaggregationMode.NULL,
        memory=memory,
        params=module(f"{MEM_CACHE}.cache_init_params"),
        pool_of=pool_of,
        tree_of=tree_of,
    )
    logging.getLogger(loader.PACKAGE).setLevel(logging.CRITICAL)
    seal()
    return release
