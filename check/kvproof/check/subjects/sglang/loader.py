"""Import SGLang's token pools and prefix caches; of its dependencies, only torch is needed.

Real modules: the allocators, the request-to-token table, the radix caches, and the functions with which the scheduler
calls them. (From 0.5.20 the unified radix cache has a tree core in Python and one in Rust. The Rust core is a binary
and is not driven.) All other modules are stubs: kernels, platforms, distributed, metrics, host and storage tiers. The
stand-ins below answer what the real modules ask of them: there is no accelerator, no triton kernel (so the torch code
runs), no speculative decoding, and every environment variable has its default.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from kvproof.check.subjects.loading import download, partial_import, stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject, no
from kvproof.check.subjects.sglang.request_key import joining_of
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
    "unified_cache.components.full_component",
    "unified_cache.components.mamba",
    "unified_cache.components.mamba_component",
    "unified_cache.components.swa",
    "unified_cache.components.swa_component",
    "unified_cache.components.tree_component",
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
    """Environment variables: all are unset, except that the unified tree uses its Python core."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        answer = "python" if name == "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND" else None
        return StubObject(get=lambda: answer)


class NoSaver:
    """Stands in for the adapter that keeps memory across a pause; it keeps nothing."""

    @staticmethod
    def create(enable: bool) -> "NoSaver":
        return NoSaver()

    def region(self, tag: Any) -> nullcontext[None]:
        return nullcontext()


def ceil_align(number: int, multiple: int) -> int:
    return ceil_div(number, multiple) * multiple


def next_power_of_2(number: int) -> int:
    """The next power of two; only read by kernels, which do not run here."""
    return 1 << max(0, number - 1).bit_length()


def num_new_pages(seq_lens: Any, page_size: int, prefix_lens: Any = None, decode: bool = False) -> int:
    """The number of additional pages that all sequences together need."""
    after = seq_lens.tolist()
    before = [length - 1 for length in after] if decode else prefix_lens.tolist()
    return sum(ceil_div(length, page_size) for length in after) - sum(ceil_div(length, page_size) for length in before)


def unchanged(function: Function | None = None, **options: Any) -> Any:
    """A decorator that returns the function unchanged; it can be used with or without options."""
    return function if function is not None else lambda wrapped: wrapped


def plain_settings() -> StubObject:
    """The settings of a server without any option."""
    return StubObject(
        disaggregation_mode="null",
        disaggregation_decode_retraction_backup="none",
        page_size=1,
        speculative_algorithm=None,
        strip_thinking_cache=False,
        extra_metric_labels=None,
    )


UTILS: dict[str, Any] = {
    **dict.fromkeys(("is_hip", "is_mps", "is_npu", "is_cuda", "is_cpu", "is_xpu", "is_musa", "is_gfx95_supported"), no),
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
        "current_platform": StubObject(
            capabilities=StubObject(supports_triton=False),
            get_paged_allocator_cls=stub_modules.nothing,
            is_cuda_alike=no,
            synchronize=stub_modules.nothing,
        )
    },
    "srt.runtime_context": dict.fromkeys(SETTINGS, plain_settings),
    "srt.server_args": dict.fromkeys(SETTINGS, plain_settings),
    "srt.utils": UTILS,
    "srt.utils.common": UTILS,
    "srt.utils.custom_op": {"register_custom_op": unchanged},
    "srt.utils.rank_consensus_checker": {"rank_consensus": unchanged},
    "srt.utils.torch_memory_saver_adapter": {"TorchMemorySaverAdapter": NoSaver},
}


def import_release(version: str, cache: Path | None = None) -> StubObject:
    """Import the modules of a release that the adapter uses, from its sources; None where the release has no module.

    Raises EngineError if it was not downloaded.
    """
    root = download.find(PACKAGE, version, cache) / PACKAGE
    submodule = mount(root, ALSO_REAL, STAND_INS)

    def module(name: str) -> Any:
        whole = f"{MEM_CACHE}.{name}"
        return submodule(whole) if is_there(root, whole) else None

    is_unified = is_there(root, f"{MEM_CACHE}.unified_cache.tree_core_registry")
    return StubObject(
        allocator=module("allocator"),
        base=module("base_prefix_cache"),
        params=module("cache_init_params"),
        radix=module("radix_cache"),
        chunk=module("chunk_cache"),
        unified=module("unified_radix_cache") if is_unified else None,
        components=module("unified_cache.components"),
        memory=module("memory_pool"),
        common=module("common"),
        joining=joining_of(root),
    )


def mount(
    root: Path, more: Iterable[str], stand_ins: Mapping[str, Mapping[str, Any]], filling: Any = stub_modules.Unused
) -> Callable[[str], Any]:
    """Make the modules around the memory cache importable, and those in `more`, of which a release may lack some.

    filling: what every other name is.
    """
    kernels = partial_import.StubModule("triton.language", stub_modules.Unused)  # defined on import, but never run
    stub_modules.provide(
        {"triton": {"jit": unchanged, "language": kernels}, "triton.language": {"__getattr__": kernels.__getattr__}}
    )
    names = (*(f"{MEM_CACHE}.{name}" for name in REAL), *more)
    return stub_modules.mount_real(PACKAGE, root, [name for name in names if is_there(root, name)], stand_ins, filling)


def is_there(root: Path, name: str) -> bool:
    """Whether a release has a module."""
    place = root.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()
