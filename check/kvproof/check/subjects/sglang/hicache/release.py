"""The modules of a release around HiCache, without a device, other processes and threads that run by themselves."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kvproof.check.subjects.loading import stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.sglang import loader
from kvproof.check.subjects.sglang.hicache.machine import (
    MACHINE,
    PAGE,
    PARALLEL,
    SETTINGS,
    THREADS,
    Alone,
    Device,
    Operations,
    memory_of,
    native_hash,
)

CONTROLLER, TREE = "srt.managers.cache_controller", "srt.mem_cache.hiradix_cache"
HOST, STORAGE = "srt.mem_cache.memory_pool_host", "srt.mem_cache.hicache_storage"
REAL = (
    CONTROLLER,
    TREE,
    HOST,
    STORAGE,
    "srt.mem_cache.l2_transfer",
    *(f"srt.mem_cache.pool_host.{name}" for name in ("base", "common", "mha", "mla")),
    "srt.mem_cache.pool_host",
)


def mounted(root: Path, tree: str, real: Iterable[str]) -> Callable[[str], Any]:
    """Import the module of a tree, of which these modules are the release's own; gives a module by its name.

    The stand-ins of `machine` are put into those that are imported.
    """
    import torch

    module, alone = _with_stand_ins(root, real), Alone(torch)
    module(tree)
    names = (f"{loader.PACKAGE}.{name}" for name in real)
    for one in [sys.modules[name] for name in names if name in sys.modules]:
        one.__dict__.update(torch=alone, psutil=MACHINE, atexit=StubObject(register=nothing))
        if hasattr(one, "Queue"):
            vars(one).update(Queue=Operations, threading=THREADS)
        if hasattr(one, "_cuda_host_register"):
            vars(one)["_cuda_host_register"] = nothing
        if hasattr(one, "STORAGE_BATCH_SIZE"):  # from 0.5.20 on
            vars(one)["STORAGE_BATCH_SIZE"] = 1  # so that a prefetch can end after any page
    return module


def _with_stand_ins(root: Path, real: Iterable[str]) -> Callable[[str], Any]:
    stub_modules.provide({"sgl_kernel": {}, "sgl_kernel.kvcacheio": {"__getattr__": lambda name: nothing}})
    stub_modules.provide({"psutil": {}})
    settings = dict.fromkeys(loader.SETTINGS, lambda: SETTINGS) | {"get_parallel": lambda: PARALLEL}
    kernels = {"__getattr__": lambda name: no}
    stand_ins = loader.STAND_INS | {
        "kernels.ops.kvcache.hicache": kernels,
        "srt.distributed": {
            f"get_{kind}_model_parallel_{what}": (lambda number=number: number)
            for kind in ("tensor", "pipeline")
            for what, number in (("rank", 0), ("world_size", 1))
        },
        "srt.layers.dp_attention": {"is_dp_attention_enabled": no},
        "srt.mem_cache.cpp_utils.native_hash": {"get_native_hash": native_hash},
        "srt.mem_cache.host_memory": {"available_host_memory_bytes": lambda **options: 1 << 60},
        "srt.mem_cache.mmap_allocator": {"alloc_mmap": memory_of},
        "srt.mem_cache.storage.mmap": {"alloc_mmap": memory_of},
        "srt.runtime_context": settings,
        "srt.server_args": settings,
        "srt.utils": loader.UTILS | {"get_device_module": lambda: Device},
    }
    return loader.mount(root, real, stand_ins)


def device_pool(kind: Any, torch: Any) -> Any:
    """A device pool of one layer, which says that it has no tokens: the host pool must be the larger one."""
    pool = kind.__new__(kind)
    buffers, places = [torch.zeros(1, 1, 1, dtype=torch.float16)], torch.zeros(1, dtype=torch.int64)
    pool.__dict__.update(
        size=0, page_size=PAGE, dtype=torch.float16, store_dtype=torch.float16, device="cpu", layer_num=1,
        start_layer=0, end_layer=0, head_num=1, head_dim=1, v_head_dim=1,
        k_buffer=buffers, v_buffer=buffers, k_data_ptrs=places, v_data_ptrs=places, k_scale_buffer=None,
        model_layer_ids=(0,), row_dim=1, kv_cache_layout="nhd", hicache_write_back_staging=None,
        host_capacity_tokens=None,
    )  # fmt: skip
    return pool
