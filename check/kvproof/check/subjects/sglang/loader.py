"""SGLang's token pools and prefix caches, importable with torch and nothing else.

Real are the allocators, the request-to-token table, the radix caches (from 0.5.20 the unified one with its Python tree
core: the Rust core of later releases is a binary, and is not driven), and the functions with which the scheduler calls
them. Stubs replace everything else: kernels, platforms, distributed, metrics, host and storage tiers. What the
real modules ask of it while they are imported, or on the paths that are driven, is answered below: no accelerator, no
triton kernel (so the torch code paths are taken), no speculative decoding, every environment variable at its default.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from kvproof.check.subjects.loading import download, partial_import, stub_modules
from kvproof.check.subjects.vllm.v0_loader import ceil_div

PACKAGE = "sglang"
MEM_CACHE = "srt.mem_cache"
REAL = (
    "allocator",
    "allocator.base",
    "allocator.page_interleave",
    "allocator.paged",
    "allocator.token",
    "base_prefix_cache",
    "buffer_mode.storage_existence_cache",
    "cache_init_params",
    "chunk_cache",
    "common",
    "events",
    "evict_policy",
    "memory_pool",
    "radix_cache",
    "session_radix_cache",
    "unified_cache.cache_action",
    "unified_cache.component_type",
    "unified_cache.components",
    "unified_cache.components.base",
    "unified_cache.components.full",
    "unified_cache.components.mamba",
    "unified_cache.components.swa",
    "unified_cache.session_ref_tracker",
    "unified_cache.tree_core_registry",
    "unified_cache.unified_tree_core",
    "unified_cache.unified_tree_core_interface",
    "storage_prefetch",
    "unified_radix_cache",
    "utils",
)
ALSO_REAL = ("srt.session.streaming_session",)
Function = TypeVar("Function", bound=Callable[..., Any])


class Environment:
    """Environment variables: each answers nothing, which is off, but for the core of the unified tree."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        answer = "python" if name == "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND" else None
        return SimpleNamespace(get=lambda: answer)


class NoSaver:
    """The adapter that keeps memory across a pause; there is none."""

    @staticmethod
    def create(enable: bool) -> "NoSaver":
        return NoSaver()

    def region(self, tag: Any) -> nullcontext[None]:
        return nullcontext()


def nothing(*arguments: Any, **options: Any) -> None:
    """Asked for what is not there."""


def no(*arguments: Any, **options: Any) -> bool:
    """Whether there is some accelerator or feature."""
    return False


def ceil_align(number: int, multiple: int) -> int:
    """The next multiple."""
    return ceil_div(number, multiple) * multiple


def next_power_of_2(number: int) -> int:
    """For kernels that are not run."""
    return 1 << max(0, number - 1).bit_length()


def num_new_pages(seq_lens: Any, page_size: int, prefix_lens: Any = None, decode: bool = False) -> int:
    """Pages that sequences need beyond those they have, over all of them."""
    if decode:
        return int((seq_lens % page_size == 1).sum()) if page_size > 1 else len(seq_lens)
    before = (prefix_lens + page_size - 1) // page_size
    return int(((seq_lens + page_size - 1) // page_size - before).sum())


def unchanged(function: Function | None = None, **options: Any) -> Any:
    """A decorator, with or without options, that changes nothing."""
    return function if function is not None else lambda wrapped: wrapped


def plain_settings() -> SimpleNamespace:
    """The settings of a server without any option."""
    return SimpleNamespace(
        disaggregation_mode="null",
        disaggregation_decode_retraction_backup="none",
        page_size=1,
        speculative_algorithm=None,
        strip_thinking_cache=False,
        extra_metric_labels=None,
    )


UTILS: dict[str, Any] = {
    **dict.fromkeys(("is_hip", "is_npu", "is_cuda", "is_cpu", "is_xpu", "is_musa", "is_gfx95_supported"), no),
    "ceil_align": ceil_align,
    "cpu_has_amx_support": no,
    "get_bool_env_var": no,
    "get_num_new_pages": num_new_pages,
    "next_power_of_2": next_power_of_2,
    "is_pin_memory_available": no,
    "support_triton": no,
}
SETTINGS = (
    "get_disagg",
    "get_global_server_args",
    "get_memory",
    "get_model",
    "get_observability",
    "get_server_args",
    "get_serving",
    "get_spec",
)
STAND_INS: dict[str, dict[str, Any]] = {
    "kernels.ops.quantization.fp8_kernel": {"is_fp8_fnuz": no},
    "srt.layers.quantization.fp8_kernel": {"is_fp8_fnuz": no},
    "srt.environ": {"envs": Environment()},
    "srt.platforms": {
        "current_platform": SimpleNamespace(capabilities=SimpleNamespace(supports_triton=False), is_cuda_alike=no)
    },
    "srt.runtime_context": dict.fromkeys(SETTINGS, plain_settings),
    "srt.server_args": dict.fromkeys(SETTINGS, plain_settings),
    "srt.utils": UTILS,
    "srt.utils.common": UTILS,
    "srt.utils.custom_op": {"register_custom_op": unchanged},
    "srt.utils.rank_consensus_checker": {"rank_consensus": unchanged},
    "srt.utils.torch_memory_saver_adapter": {"TorchMemorySaverAdapter": NoSaver},
}


class Release(NamedTuple):
    """The modules of a release that an adapter uses; None for one that it does not have."""

    allocator: Any
    base: Any
    params: Any
    radix: Any
    chunk: Any
    unified: Any
    components: Any
    memory: Any
    common: Any


def import_release(version: str, cache: Path | None = None) -> Release:
    """A release's manager, from its unpacked sources. Raises EngineError if the release is not here."""
    root = download.find(PACKAGE, version, cache) / PACKAGE
    _stand_in_for_triton()
    names = (*(f"{MEM_CACHE}.{name}" for name in REAL), *ALSO_REAL)
    stub_modules.mount_real(PACKAGE, root, [name for name in names if _is_there(root, name)], STAND_INS)

    def module(name: str) -> Any:
        whole = f"{MEM_CACHE}.{name}"
        return importlib.import_module(f"{PACKAGE}.{whole}") if _is_there(root, whole) else None

    return Release(
        module("allocator"),
        module("base_prefix_cache"),
        module("cache_init_params"),
        module("radix_cache"),
        module("chunk_cache"),
        module("unified_radix_cache") if _is_there(root, f"{MEM_CACHE}.unified_cache.tree_core_registry") else None,
        module("unified_cache.components"),
        module("memory_pool"),
        module("common"),
    )


def _is_there(root: Path, name: str) -> bool:
    place = root.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _stand_in_for_triton() -> None:
    """Kernels are defined where they are imported, and never run: without triton a decorator stands in."""
    if "triton" in sys.modules or importlib.util.find_spec("triton") is not None:
        return
    triton, language = ModuleType("triton"), partial_import.StubModule("triton.language", stub_modules.Unused)
    triton.__dict__.update(jit=unchanged, language=language)
    sys.modules.update({"triton": triton, "triton.language": language})
