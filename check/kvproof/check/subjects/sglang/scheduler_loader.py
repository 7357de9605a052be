"""SGLang's own scheduler, also with its disaggregation, importable with torch and numpy alone.

Real are the scheduler, its batches, requests and policies, what a result does to a request, the allocation for a
batch, the invariant checker, the queues of disaggregation, and what `loader` imports. Every other module is a stub in
which each name is a type of its own that cannot be instantiated, called or read: a part of the engine that is used and
not stood in for fails by its name. What is used when the modules are imported, or while the scheduler runs, is below.
"""

import inspect
import logging
import os
import sys
import warnings
from collections import namedtuple
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from kvproof.check.protocol.manager import Unsupported
from kvproof.check.subjects.loading import download, stub_modules
from kvproof.check.subjects.loading.partial_import import StandInModule
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.sglang import loader
from kvproof.check.subjects.sglang.scheduler_fakes import AbortReq, NoLogprobs, Sampling, Times
from kvproof.check.subjects.sglang.scheduler_settings import CURRENT, Distributed, Log, defaults_of, turned
from kvproof.check.subjects.sglang.scheduler_stubs import Stubs, seal

MEM_CACHE, DISAGGREGATION = loader.MEM_CACHE, "srt.disaggregation"
PARTS = "srt.managers.scheduler_components"
OLD_COMPONENTS = "unified_cache_components"  # of the unified tree, up to 0.5.16
ABORTS = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE"
REAL = (
    *(f"{MEM_CACHE}.{name}" for name in loader.REAL),
    *loader.ALSO_REAL,
    "srt.beam_search.batch_tail",
    "srt.beam_search.fork",
    f"{DISAGGREGATION}.base",
    f"{DISAGGREGATION}.base.conn",
    f"{DISAGGREGATION}.decode",
    f"{DISAGGREGATION}.decode_hicache_mixin",
    f"{DISAGGREGATION}.decode_schedule_batch_mixin",
    f"{DISAGGREGATION}.prefill",
    f"{DISAGGREGATION}.utils",
    "srt.dllm.mixin.req",
    "srt.environ",
    "srt.managers.batch_tail",
    "srt.managers.overlap_utils",
    "srt.managers.schedule_batch",
    "srt.managers.schedule_policy",
    "srt.managers.scheduler",
    f"{PARTS}.batch_result_processor",
    f"{PARTS}.invariant_checker",
    f"{PARTS}.new_token_ratio_tracker",
    f"{PARTS}.pool_stats_observer",
    "srt.managers.scheduler_output_processor_mixin",
    "srt.managers.utils",
    f"{MEM_CACHE}.allocation",
    f"{MEM_CACHE}.allocation_sizing",
    f"{MEM_CACHE}.allocator.prefill_budget",
    f"{MEM_CACHE}.allocator.swa",
    f"{MEM_CACHE}.base_swa_memory_pool",
    f"{MEM_CACHE}.kv_cache_builder",
    f"{MEM_CACHE}.memory_budget",
    f"{MEM_CACHE}.prefill_budget",
    f"{MEM_CACHE}.swa_memory_pool",
    *(f"{MEM_CACHE}.{OLD_COMPONENTS}{name}" for name in ("", ".full_component", ".mamba_component")),
    *(f"{MEM_CACHE}.{OLD_COMPONENTS}{name}" for name in (".swa_component", ".tree_component")),
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
DSV4 = ("maybe_evict_dsv4_state", "maybe_evict_dsv4_state_on_swa")  # up to 0.5.17
GIVES = (
    "get_context",
    "get_device",
    "get_exec",
    "get_flags",
    "get_lora",
    "get_mm",
    "get_parallel",
    "get_schedule",
    *loader.SETTINGS,
)


def backends(*arguments: Any) -> tuple[str, str]:
    """The attention backends of prefill and decode: those that run anywhere."""
    return "torch_native", "torch_native"


class Range(namedtuple("Range", "start end")):
    """Where a chunk begins and ends, in releases that keep it in such a tuple."""

    @property
    def length(self) -> int:
        return int(self.end - self.start)


class Address(namedtuple("Address", "host port")):
    """The address of a host and a port."""

    def to_host_port_str(self) -> str:
        return f"{self.host}:{self.port}"


def flattened(arrays: list[Any], pinned: bool) -> Any:
    """The numbers of all arrays as one tensor."""
    return torch.tensor([*chain.from_iterable(arrays)], dtype=torch.int64)


def on_device(data: Any, *, dtype: Any = None, **options: Any) -> torch.Tensor:
    """A tensor of these numbers: a stand-in for a copy to the device."""
    return torch.as_tensor(data, dtype=dtype)


def zero(*arguments: Any) -> int:
    """The rank among all of a kind."""
    return 0


def one(*arguments: Any) -> int:
    """The number of ranks of a kind."""
    return 1


UTILS = loader.UTILS | {"Range": Range, "flatten_arrays_to_pinned_cpu": flattened, "async_h2d": on_device}
CONTEXT: dict[str, Any] = dict.fromkeys(GIVES, turned) | {
    "attention_backends": backends,
    "mamba_extra_buffer_enabled": no,
    "mamba_extra_buffer_lazy_enabled": no,
}
RANKS = {
    f"get_attention_{kind}_{what}": answer
    for kind in ("cp", "dp", "tp")
    for what, answer in (("rank", zero), ("size", one))
}
STAND_INS: dict[str, dict[str, Any]] = loader.STAND_INS | {
    "kernels.ops.attention.dsv4.unified_kv_kernels.env_gate": {"is_unified_kv_triton": no},
    "srt.configs.model_config": {"is_minimax_sparse": no},
    "srt.hardware_backend.npu.dsv4.dsv4_common_hooks": dict.fromkeys(DSV4, nothing),
    "srt.layers.attention.dsa.utils": {"is_dsa_prefill_cp_in_seq_split": no},
    "srt.layers.attention.dsv4.unified_kv_gate": {"is_unified_kv_triton": no},
    "srt.layers.attention.nsa.utils": {"is_nsa_prefill_cp_in_seq_split": no},
    "srt.layers.dp_attention": RANKS | {"get_attention_tp_group": turned},
    "srt.layers.utils.cp_utils": {"is_prefill_context_parallel_enabled": no},
    "srt.managers.io_struct": {"AbortReq": AbortReq},
    f"{PARTS}.logprob_result_processor": {"SchedulerLogprobResultProcessor": NoLogprobs},
    f"{PARTS}.metrics_reporter": {"PrefillStats": StubObject(from_adder=nothing)},
    "srt.metrics.collector": {"TimeStats": Times},
    "srt.observability.req_time_stats": {
        "SchedulerReqTimeStats": Times,
        "APIServerReqTimeStats": Times,
        "set_schedule_time_batch": nothing,
        "set_time_batch": nothing,
    },
    "srt.observability.scheduler_metrics_mixin": {"PrefillStats": StubObject(from_adder=nothing)},
    "srt.observability.trace": {"flush_trace_batch": nothing},
    "srt.runtime_context": CONTEXT,
    "srt.sampling.sampling_batch_info": {"SamplingBatchInfo": Sampling},
    "srt.server_args": CONTEXT,
    "srt.state_capturer.indexer_topk": {"get_global_indexer_capturer": nothing},
    "srt.state_capturer.routed_experts": {"get_global_experts_capturer": nothing},
    "srt.utils": UTILS,
    "srt.utils.common": UTILS,
    "srt.utils.invariants": {
        "Bucket": StubObject(FATAL_UNCONTAINABLE=None, GUARD=None),
        "Invariant": nothing,
        "IsTrue": nothing,
        "expect": nothing,  # by default nothing is checked
    },
    "srt.utils.network": {"NetworkAddress": Address},
    "srt.utils.weight_versions": {"compute_weight_version_spans": nothing},
}


def import_scheduler(version: str, cache: Path | None = None) -> StubObject:
    """Import what the adapters use of a release, from its sources. Raises EngineError if it was not downloaded."""
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = "python"  # the other one, from 0.5.20 on, is in Rust
    os.environ["SGLANG_SWA_EVICTION_INTERVAL"] = "1"  # by default 128, more than drawn sequences have
    root = download.find(loader.PACKAGE, version, cache) / loader.PACKAGE
    absent = [package for package in OUTSIDE if package not in sys.modules]
    for package in absent:
        stub_modules.provide({package: {"__getattr__": Stubs(package, None).__getattr__}})
    stand_ins = {name: names for name, names in STAND_INS.items() if name not in REAL}
    submodule = loader.mount(root, REAL, stand_ins, Stubs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch and the engine deprecate is no concern of a judge
        found: dict[str, Any] = {name: submodule(name) if loader.is_there(root, name) else None for name in REAL}
    for package in absent:
        if isinstance(sys.modules.get(package), StandInModule):
            del sys.modules[package]  # another engine in this process may want more of it
    _replace(found)
    logging.getLogger(loader.PACKAGE).setLevel(logging.CRITICAL)
    seal()
    scheduler, batch = found["srt.managers.scheduler"], found["srt.managers.schedule_batch"]
    radix, allocator = found[f"{MEM_CACHE}.radix_cache"], found[f"{MEM_CACHE}.allocator"]
    plans = inspect.signature(scheduler.Scheduler.get_next_batch_to_run).parameters
    return StubObject(
        of=found,
        root=root,
        defaults=defaults_of(root),
        Scheduler=scheduler.Scheduler,
        Req=type("Req", (batch.Req,), {"__hash__": number_of, "__module__": batch.__name__}),
        ScheduleBatch=batch.ScheduleBatch,
        RadixKey=radix.RadixKey,
        has_arrays=hasattr(radix, "array"),  # from 0.5.13
        has_plans=len(plans) > 1,  # from 0.5.16
        has_large_pages="use_triton_kernels" in inspect.getsource(allocator.PagedTokenToKVPoolAllocator),  # from 0.5.22
        modes=scheduler.DisaggregationMode,
    )


def number_of(request: Any) -> int:
    """A hash that does not depend on addresses, so that sets of requests have the same order each time."""
    return int(request.rid)


class WithoutDevice:
    """torch, on a machine whose device never has anything to do."""

    cuda = StubObject(synchronize=nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _replace(found: dict[str, Any]) -> None:
    """Put into the modules what stands in for time, logs, other ranks and the user. `CURRENT` says who asks."""
    stand_ins = {"time": CURRENT.clock, "logger": Log(), "dist": Distributed}
    for part in found.values():
        for name, thing in stand_ins.items():
            if part is not None and hasattr(part, name):
                setattr(part, name, thing)
    memory = found[f"{MEM_CACHE}.memory_pool"]
    if "torch.cuda.synchronize()" in inspect.getsource(memory.MHATokenToKVPool):
        memory.torch = WithoutDevice()


def pool_of(release: StubObject, num_tokens: int, size: int, dtype: Any = torch.float16, memory: Any = None) -> Any:
    """An allocator of pages of so many slots, over a memory of keys and values. Raises Unsupported."""
    kinds = release.of[f"{MEM_CACHE}.allocator"]
    if size == 1:
        return kinds.TokenToKVPoolAllocator(num_tokens, dtype, "cpu", memory, False)
    if not release.has_large_pages:
        raise Unsupported("only a triton kernel of this release can allocate pages of several slots")
    return kinds.PagedTokenToKVPoolAllocator(num_tokens, size, dtype, "cpu", memory, False)


def component_types(release: StubObject) -> Any:
    """What the nodes of a unified tree may have KV for."""
    of = release.of
    return (
        of[f"{MEM_CACHE}.unified_cache.components"] or of[f"{MEM_CACHE}.{OLD_COMPONENTS}.tree_component"]
    ).ComponentType


def tree_of(release: StubObject, caching: bool, table: Any, pool: Any, size: int, window: int | None = None) -> Any:
    """The cache that the release itself would make over a table and an allocator. window: tokens before one, if any."""
    of = release.of
    params = of[f"{MEM_CACHE}.cache_init_params"].CacheInitParams(not caching, table, pool, size)
    params.sliding_window_size = window
    if of[f"{MEM_CACHE}.chunk_cache"] is not None and not caching:
        chunks = of[f"{MEM_CACHE}.chunk_cache"]
        return (chunks.ChunkCache if window is None else chunks.SWAChunkCache)(params)
    if window is not None or of[f"{MEM_CACHE}.unified_cache.tree_core_registry"] is not None:
        kinds = component_types(release)
        params.tree_components = (kinds.FULL,) if window is None else (kinds.FULL, kinds.SWA)
        return of[f"{MEM_CACHE}.unified_radix_cache"].UnifiedRadixCache(params)
    return of[f"{MEM_CACHE}.radix_cache"].RadixCache(params)
