"""SGLang's scheduler, with its disaggregation of prefill and decode, importable with torch alone.

Real are the `Scheduler` with its queues of disaggregation, its requests, batches and policy, the processing of results,
the buffers of metadata, the pools and the prefix caches. Replaced are what starts a server, the transport (`pd_wire`),
and what `pd_fakes` has.
"""

import inspect
import os
import sys
import warnings
from collections import namedtuple
from typing import Any

import torch

from kvproof.check.subjects.loading import download
from kvproof.check.subjects.loading.partial_import import StandInModule
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing, provide
from kvproof.check.subjects.sglang import loader
from kvproof.check.subjects.sglang.pd_fakes import CURRENT, TURNED, Log, Missing, Sink, Times, defaults_of
from kvproof.check.subjects.sglang.pd_wire import class_of

DISAGGREGATION = "srt.disaggregation"
REAL = (
    f"{DISAGGREGATION}.base",
    f"{DISAGGREGATION}.base.conn",
    f"{DISAGGREGATION}.decode",
    f"{DISAGGREGATION}.decode_hicache_mixin",
    f"{DISAGGREGATION}.decode_schedule_batch_mixin",
    f"{DISAGGREGATION}.prefill",
    f"{DISAGGREGATION}.utils",
    "srt.beam_search.batch_tail",
    "srt.beam_search.fork",
    "srt.dllm.mixin.req",
    "srt.environ",
    "srt.managers.batch_tail",
    "srt.managers.overlap_utils",
    "srt.managers.schedule_batch",
    "srt.managers.schedule_policy",
    "srt.managers.scheduler",
    "srt.managers.scheduler_components.batch_result_processor",
    "srt.managers.scheduler_components.new_token_ratio_tracker",
    "srt.managers.scheduler_components.pool_stats_observer",
    "srt.managers.scheduler_output_processor_mixin",
    "srt.managers.utils",
    "srt.mem_cache.allocation",
    "srt.mem_cache.allocation_sizing",
    "srt.mem_cache.allocator.prefill_budget",
    "srt.mem_cache.allocator.swa",
    "srt.mem_cache.kv_cache_builder",
    "srt.mem_cache.memory_budget",
    "srt.mem_cache.prefill_budget",
    "srt.mem_cache.swa_memory_pool",
    "srt.model_executor.forward_batch_info",
    "srt.session.streaming_session",
)
PACKAGES = ("zmq", "psutil", "setproctitle", "requests", "orjson")  # that are imported, and not used
GETTERS = ("context", "device", "disagg", "exec", "flags", "global_server_args", "lora", "memory", "mm", "model")
MORE_GETTERS = ("observability", "parallel", "schedule", "server_args", "serving", "spec")


class Range(namedtuple("Range", ("start", "end"))):
    """The tokens of a prompt that a step computes."""

    @property
    def length(self) -> int:
        return int(self.end - self.start)


class Address(namedtuple("Address", ("host", "port"))):
    """The address of a host and a port."""

    def to_host_port_str(self) -> str:
        return f"{self.host}:{self.port}"


def turned(*arguments: Any) -> Any:
    """The options of the side that is called."""
    return TURNED


def one(*arguments: Any) -> int:
    """The number of ranks."""
    return 1


def zero(*arguments: Any) -> int:
    """The rank of a side among all of its kind."""
    return 0


def sink(*arguments: Any, **options: Any) -> Sink:
    """Something that is told what happens."""
    return Sink()


def abort_of(rid: str, **more: Any) -> StubObject:
    """A message that the user of a request leaves."""
    return StubObject(**{"rid": rid, "abort_all": False, "abort_message": None, "finished_reason": None} | more)


def times(*arguments: Any, **options: Any) -> Times:
    """The times of a request."""
    return Times()


def one_tensor(parts: list[Any], pinned: Any) -> torch.Tensor:
    """The tokens of all requests, one after the other."""
    return torch.tensor([token for part in parts for token in part])


def on_device(data: Any, *, dtype: Any = None, **options: Any) -> torch.Tensor:
    """A tensor of these numbers: a stand-in for a copy to the device."""
    return torch.as_tensor(data, dtype=dtype)


class Distributed:
    """What disaggregation calls of `torch.distributed`: each side is alone."""

    ReduceOp = torch.distributed.ReduceOp
    get_world_size = staticmethod(lambda group=None: 1)
    all_reduce = staticmethod(nothing)


def stage(*arguments: Any) -> Any:
    """A decorator that measures how long a method takes."""
    return loader.unchanged


SETTINGS = {f"get_{name}": turned for name in (*GETTERS, *MORE_GETTERS)}
UTILS = loader.UTILS | {"Range": Range, "flatten_arrays_to_pinned_cpu": one_tensor, "async_h2d": on_device}
STAND_INS: dict[str, dict[str, Any]] = {
    "srt.runtime_context": SETTINGS
    | {"attention_backends": lambda *arguments: ("torch_native", "torch_native"), "mamba_extra_buffer_enabled": no}
    | {"mamba_extra_buffer_lazy_enabled": no},
    "srt.server_args": SETTINGS,
    "srt.utils": UTILS,
    "srt.utils.common": UTILS,
    "srt.layers.dp_attention": {
        "get_attention_cp_rank": zero,
        "get_attention_cp_size": one,
        "get_attention_dp_rank": zero,
        "get_attention_dp_size": one,
        "get_attention_tp_group": turned,
        "get_attention_tp_rank": zero,
        "get_attention_tp_size": one,
    },
    "srt.managers.io_struct": {"AbortReq": abort_of},
    "srt.managers.scheduler_components.logprob_result_processor": {"SchedulerLogprobResultProcessor": sink},
    "srt.managers.scheduler_components.metrics_reporter": {"PrefillStats": Sink()},
    "srt.metrics.collector": {"TimeStats": sink},
    "srt.observability.req_time_stats": {
        "SchedulerReqTimeStats": times,
        "APIServerReqTimeStats": times,
        "set_schedule_time_batch": nothing,
        "set_time_batch": nothing,
    },
    "srt.observability.scheduler_stage_metrics": {"scheduler_stage_method": stage},
    "srt.observability.scheduler_metrics_mixin": {"PrefillStats": Sink()},
    "srt.observability.trace": {"flush_trace_batch": nothing},
    "srt.state_capturer.indexer_topk": {"get_global_indexer_capturer": nothing},
    "srt.state_capturer.routed_experts": {"get_global_experts_capturer": nothing},
    "srt.utils.network": {"NetworkAddress": Address},
    "srt.sampling.sampling_batch_info": {"SamplingBatchInfo": StubObject(from_schedule_batch=sink)},
}


def import_modules(version: str) -> StubObject:
    """The modules of a release. Raises EngineError."""
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = "python"  # the other one is compiled
    root = download.find(loader.PACKAGE, version) / loader.PACKAGE
    absent = [package for package in PACKAGES if package not in sys.modules]
    for package in absent:
        provide({package: {"__getattr__": Missing(package).__getattr__}})
    stand_ins = {name: names for name, names in (loader.STAND_INS | STAND_INS).items() if name not in REAL}
    submodule = loader.mount(root, (*REAL, *loader.ALSO_REAL), stand_ins, Missing())

    def module(name: str) -> Any:
        return submodule(name) if loader.is_there(root, name) else None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch and the engine deprecate is no concern of a judge
        found = {name: module(name) for name in (*REAL, *(f"{loader.MEM_CACHE}.{one}" for one in loader.REAL))}
    for package in absent:
        if isinstance(sys.modules.get(package), StandInModule):
            del sys.modules[package]  # another engine in this process may want more of it
    Missing.is_importing = False
    _replace(found)
    conn = (root / "srt" / "disaggregation" / "common" / "conn.py").read_text("utf-8")
    return StubObject(
        of=found,
        decode=found[f"{DISAGGREGATION}.decode"],
        scheduler=found["srt.managers.scheduler"],
        batch=found["srt.managers.schedule_batch"],
        results=found["srt.managers.utils"],
        memory=found[f"{loader.MEM_CACHE}.memory_pool"],
        allocator=found[f"{loader.MEM_CACHE}.allocator"],
        unified=found[f"{loader.MEM_CACHE}.unified_radix_cache"],
        has_pages="use_triton_kernels"
        in inspect.getsource(found[f"{loader.MEM_CACHE}.allocator"].PagedTokenToKVPoolAllocator),
        kv_args=found[f"{DISAGGREGATION}.base.conn"].KVArgs,
        defaults=defaults_of(root),
        tells_aborts="_send_abort_notification" in conn,
        acknowledges=_acknowledges(found["srt.environ"]),
    )


def _acknowledges(environ: Any) -> bool:
    """Whether DECODE keeps the pages of an aborted transfer until PREFILL says that nothing moves, by default."""
    flag = getattr(environ.envs, "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE", None)
    return flag is not None and bool(flag.get())


class WithoutDevice:
    """torch, on a machine whose device never has anything to do."""

    cuda = StubObject(synchronize=nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _replace(found: dict[str, Any]) -> None:
    """Put into the modules what stands in for time, logs, other ranks and the transport. `CURRENT` says who asks."""
    stand_ins = {
        "time": CURRENT.clock,
        "logger": Log(),
        "dist": Distributed,
        "get_kv_class": class_of,
        "_make_abort_req": nothing,  # what the process of the user hears
    }
    for part in found.values():
        for name, thing in stand_ins.items():
            if part is not None and hasattr(part, name):
                setattr(part, name, thing)
    memory = found[f"{loader.MEM_CACHE}.memory_pool"]
    if "torch.cuda.synchronize()" in inspect.getsource(memory.MHATokenToKVPool):
        memory.torch = WithoutDevice()
