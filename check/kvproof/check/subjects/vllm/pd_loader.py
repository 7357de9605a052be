"""vLLM's V1 scheduler with its NIXL connector, importable with torch and msgspec: releases 0.26 to 0.33.

The connector is the release's own: `NixlPullConnector` and `NixlPushConnector`, their sides of the scheduler and of the
worker, their metadata, their mapping of ranks, and the helpers and base classes of connectors. Replaced are the agent
of NIXL (`pd_agent`), and what `pd_fakes` has: the clock, sockets, threads, the platform and the attention back end. The
rest is replaced as for the scheduler (`v1_scheduler_loader`).
"""

import contextlib
import re
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from kvproof.check.subjects.loading import EngineError, download, partial_import
from kvproof.check.subjects.loading.stub_modules import StubObject, Unused, nothing, provide
from kvproof.check.subjects.vllm.pd_agent import CURRENT
from kvproof.check.subjects.vllm.pd_fakes import (
    LISTENER_THREADS,
    WRITER_THREADS,
    Backend,
    BlockTable,
    Later,
    Log,
    Platform,
    path_of,
)
from kvproof.check.subjects.vllm.v1_scheduler_loader import HOLLOW, KV_CONNECTORS, STAND_INS, Hollow

CONNECTORS = "distributed.kv_transfer.kv_connector"
NIXL = f"{KV_CONNECTORS}.nixl"
REAL = (f"{CONNECTORS}.utils", f"{KV_CONNECTORS}.base", f"{KV_CONNECTORS}.metrics", "v1.outputs")
MORE_HOLLOW = (
    "distributed.utils",
    "forward_context",
    "model_executor.layers.attention_layer_base",
    "model_executor.layers.mamba",
    "model_executor.layers.mamba.mamba_utils",
    "v1.attention.selector",
    "v1.metrics.utils",
    "v1.worker",
)
PACKAGES = (  # that the connector imports, and of which it uses names only in what is replaced
    {
        "zmq": dict.fromkeys(("Context", "Socket"), Unused)
        | {"REQ": 3, "ROUTER": 6, "RCVTIMEO": 27, "Again": TimeoutError}
    },
    {"regex": {"compile": re.compile, "search": re.search, "split": re.split, "IGNORECASE": re.IGNORECASE}},
    {"prometheus_client": dict.fromkeys(("Counter", "Gauge", "Histogram"), Unused)},
)


def on_device(data: Iterable[Any], *arguments: Any, dtype: Any = None, **options: Any) -> torch.Tensor:
    """A tensor of these numbers: a stand-in for a copy to the device."""
    kinds = (kind for kind in (*arguments, dtype) if isinstance(kind, torch.dtype))
    return torch.as_tensor(list(data), dtype=next(kinds, torch.int64))


def rank() -> int:
    """The rank of the worker that is being made."""
    return CURRENT.rank


def num_ranks() -> int:
    """The ranks of its side."""
    return CURRENT.num_ranks


def block_size_of(size: int, *others: Any) -> int:
    """The size of the kernel's blocks: that of the manager."""
    return size


def answer(what: Any, *arguments: Any, **options: Any) -> Any:
    """One answer to every question."""
    return what


def same_version(*factors: Any, **more: Any) -> str:
    """Both engines are of one release and one configuration of what a handshake compares."""
    return "one release"


TENSORS = {"async_tensor_h2d": on_device, "PIN_MEMORY": False}
MORE_STAND_INS: dict[str, dict[str, Any]] = {
    "logger": {"init_logger": Log},
    "platforms": {"current_platform": Platform()},
    "config": {"CacheConfig": Hollow, "KVTransferConfig": Hollow, "ModelConfig": Hollow, "VllmConfig": Hollow}
    | {"get_layers_from_vllm_config": nothing, "set_current_vllm_config": nothing, "get_current_vllm_config": nothing},
    "config.utils": {"hash_factors": same_version},
    "distributed.nixl_utils": {
        "NixlWrapper": Hollow,
        "check_nixl_version": nothing,
        "nixl_agent_config": None,
        "nixlXferTelemetry": Hollow,
    },
    "distributed.parallel_state": {
        "get_pcp_group": nothing,
        "get_tensor_model_parallel_rank": rank,
        "get_tensor_model_parallel_world_size": num_ranks,
        "get_tp_group": lambda: StubObject(rank_in_group=CURRENT.rank),
    },
    "utils.gpu_sync_debug": {"gpu_sync_allowed": contextlib.nullcontext},
    "utils.network_utils": {"make_zmq_path": path_of, "make_zmq_socket": nothing},
    "v1.attention.backends.utils": {"get_kv_cache_layout": lambda: "HND"},
    "v1.worker.block_table": {"BlockTable": BlockTable},
    "v1.worker.utils": {"select_common_block_size": block_size_of},
}


def _stand_ins(root: Any) -> dict[str, dict[str, Any]]:
    """What replaces the rest of vLLM, over the unpacked sources in `root`."""
    found = {name: names for name, names in STAND_INS.items() if name not in REAL}
    for name, names in MORE_STAND_INS.items():
        found[name] = found.get(name, {}) | names
    for part in ("hashing", "math_utils", "mem_constants", "mem_utils", "torch_utils"):
        found[f"utils.{part}"] = STAND_INS["utils"] | TENSORS
    del found["v1.metrics.cache_hit_source"]
    for name in (CONNECTORS, KV_CONNECTORS, "v1.metrics"):
        found[name] = found.get(name, {}) | {"__path__": [str(root / "vllm" / name.replace(".", "/"))]}
    return found


def import_modules(version: str) -> StubObject:
    """The modules of a release's scheduler and of its NIXL connector. Raises EngineError."""
    for package in PACKAGES:
        provide(package)
    root = download.find("vllm", version)
    stand_ins = _stand_ins(root)
    hollow = [name for name in (*HOLLOW, *MORE_HOLLOW) if name not in stand_ins and name not in REAL]
    module = partial_import.mount("vllm", root, stand_ins, hollow, Hollow)
    base = module(f"{KV_CONNECTORS}.base")
    names = ("KVConnectorBase_V1", "KVConnectorRole", "SupportsHMA", "supports_hma")
    sys.modules[f"vllm.{KV_CONNECTORS}"].__dict__.update({name: getattr(base, name) for name in names})
    if not partial_import.has_module("vllm", f"{NIXL}.push_worker"):
        raise EngineError(f"the NIXL connector of vLLM {version} is driven from 0.26.0 on")
    parts = ("base_scheduler", "base_worker", "pull_scheduler", "pull_worker", "push_scheduler", "push_worker")
    nixl = {name: module(f"{NIXL}.{name}") for name in (*parts, "connector", "metadata")}
    _replace(nixl)
    return StubObject(
        scheduler=module("v1.core.sched.scheduler"),
        ahead=module("v1.core.sched.async_scheduler"),
        request=module("v1.request"),
        interface=module("v1.kv_cache_interface"),
        utils=module("v1.core.kv_cache_utils"),
        role=base.KVConnectorRole,
        transfers=module(f"{CONNECTORS}.utils"),
        outputs=module("v1.outputs"),
        nixl=StubObject(**nixl),
    )


def _replace(nixl: dict[str, Any]) -> None:
    """Put into the modules of the connector what stands in for NIXL's agent, time, sockets and threads.

    `CURRENT` says which pair asks.
    """
    for part in nixl.values():
        if hasattr(part, "time"):
            part.time = CURRENT.clock
    worker = nixl["base_worker"]
    worker.NixlWrapper, worker.nixl_agent_config = CURRENT.agent, None
    worker.zmq_ctx = CURRENT.connect
    worker.ThreadPoolExecutor = Later
    nixl["base_scheduler"].threading = LISTENER_THREADS
    nixl["base_scheduler"].NixlBaseConnectorScheduler._nixl_handshake_listener = staticmethod(CURRENT.listen)
    nixl["push_worker"].threading = WRITER_THREADS
    for part in (worker, nixl["metadata"]):
        if hasattr(part, "compute_nixl_compatibility_hash"):
            part.compute_nixl_compatibility_hash = same_version
    for name, found in (
        ("get_current_attn_backends", [Backend]),
        ("get_current_attn_backends_and_specs", ([Backend], [])),
    ):
        if hasattr(worker, name):
            setattr(worker, name, partial(answer, found))
