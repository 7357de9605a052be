"""SGLang's own modules, on a machine without a device and without the packages that they import.

`import_modules` makes the modules of the prefix caches importable, and those that a script names; the rest is stubs, as
in `on_stub_modules`. What the modules need of others is listed in `STAND_INS`, or by the script.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import on_stub_modules


def import_modules(
    names: Sequence[str], stand_ins: Mapping[str, Mapping[str, Any]] | None = None
) -> Callable[[str], Any]:
    """Import these modules of SGLang, as far as the release has them.

    stand_ins: names in modules that are not imported, by module. Returns a function that gives a module by its name,
    or None if the release does not have it. Raises ModuleNotFoundError if Python finds no SGLang.
    """
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = "python"  # the other one is compiled
    return on_stub_modules.import_modules("sglang", ("srt.environ", *CACHES, *names), STAND_INS | dict(stand_ins or {}))


CACHES = tuple(
    f"srt.mem_cache.{name}"
    for name in (
        "allocator", "allocator.base", "allocator.page_interleave", "allocator.paged", "allocator.token",
        "base_prefix_cache", "buffer_mode.storage_existence_cache", "cache_init_params", "chunk_cache", "common",
        "events", "evict_policy", "memory_pool", "radix_cache", "session_radix_cache", "storage_prefetch",
        "unified_cache.cache_action", "unified_cache.component_type", "unified_cache.components",
        "unified_cache.components.base", "unified_cache.components.full", "unified_cache.components.full_component",
        "unified_cache.components.mamba", "unified_cache.components.mamba_component", "unified_cache.components.swa",
        "unified_cache.components.swa_component", "unified_cache.components.tree_component",
        "unified_cache.session_ref_tracker", "unified_cache.tree_core_registry", "unified_cache.unified_tree_core",
        "unified_cache.unified_tree_core_interface", "unified_radix_cache", "utils",
    )
)  # fmt: skip


class NoSaver:
    """Stands in for what keeps memory across a pause; it keeps nothing."""

    @staticmethod
    def create(**options: Any) -> "NoSaver":
        return NoSaver()

    def region(self, tag: str) -> Any:
        return nullcontext()


def no(*arguments: Any, **options: Any) -> bool:
    """A function that says that something is absent or off."""
    return False


def num_new_pages(seq_lens: Any, page_size: int, prefix_lens: Any = None, decode: bool = False) -> int:
    """How many pages these sequences need beyond those of their prefixes."""
    after: list[int] = seq_lens.tolist()
    before: list[int] = [length - 1 for length in after] if decode else prefix_lens.tolist()
    return sum(-(-one // page_size) - -(-other // page_size) for one, other in zip(after, before, strict=True))


UTILS = {"get_bool_env_var": no, "get_num_new_pages": num_new_pages}
STAND_INS: dict[str, dict[str, Any]] = {
    "srt.utils": UTILS,
    "srt.utils.common": UTILS,
    "srt.utils.torch_memory_saver_adapter": {"TorchMemorySaverAdapter": NoSaver},
}
