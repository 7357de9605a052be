"""SGLang's pools of slots for models that have layers with a sliding window beside layers with full attention."""

from typing import Any

import torch
from on_sglang_modules import import_modules

COMPONENTS = "srt.mem_cache.unified_cache_components"  # the name up to 0.5.17
module = import_modules(
    [
        COMPONENTS,
        *(f"{COMPONENTS}.{name}_component" for name in ("full", "mamba", "swa", "tree")),
        "srt.mem_cache.allocator.swa",
        "srt.mem_cache.base_swa_memory_pool",
        "srt.mem_cache.swa_memory_pool",
        "srt.utils.invariants",
        "srt.session.streaming_session",
    ]
)


def new_allocator(num_slots: int, page_size: int = 1) -> Any:
    """An allocator of so many slots for full attention, and as many for the window."""

    class Pool(module("srt.mem_cache.base_swa_memory_pool").BaseSWAKVPool):  # type: ignore[misc]
        """KV of no layers; it has the map from slots of full attention to slots of the window."""

        full_kv_pool = swa_kv_pool = None

        def __init__(self) -> None:
            """There is no memory."""

        def register_mapping(self, places: Any) -> None:
            self.full_to_swa_index_mapping = places

        def translate_loc_from_full_to_swa(self, slots: Any) -> Any:
            return self.full_to_swa_index_mapping[slots]

    Pool.__abstractmethods__ = frozenset()
    in_allocators = module("srt.mem_cache.allocator.swa")  # before 0.5.13 it is elsewhere
    kind = (in_allocators or module("srt.mem_cache.swa_memory_pool")).SWATokenToKVPoolAllocator
    return kind(num_slots, num_slots, page_size, torch.float16, "cpu", Pool(), False)


def free_slots(allocator: Any) -> set[int]:
    """The slots of a part of it that are free."""
    released = allocator.release_pages
    return set(allocator.free_pages.tolist()) | set([] if released is None else released.tolist())
