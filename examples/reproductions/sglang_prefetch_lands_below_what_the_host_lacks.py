"""SGLang 0.5.15 to 0.5.20: HiCache hangs prefetched host pages below a page that is on the device only (issue 30106).

While a prefetch of three pages is under way, a request publishes the first two. The host has no room for them, so they
are on the device only. When the prefetch is over, its third page is put below them. The next eviction takes the node of
the first two for a leaf of the device, and asserts that it has no children: the scheduler ends. From 0.5.21 on, pages
that were prefetched below one that the host does not have are dropped.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from array import array
from typing import Any

import torch
from on_any_engine import StandIn, fault_if_raised, nothing
from on_sglang_scheduler import module, new_caches

RADIX, HASHES = "srt.mem_cache.hiradix_cache", ["a", "b", "c"]


class Controller:
    """The controller of a host without room."""

    write_policy = "write_through"
    mem_pool_device_allocator = StandIn(free=nothing)

    def reset(self) -> None:
        """There is nothing under way."""

    def write(self, device_indices: Any, node_id: int, **more: Any) -> None:
        """There is no room."""

    def evict_host(self, slots: Any) -> int:
        """There is nothing."""
        return 0


def new_radix_cache() -> Any:
    """HiCache's tree of 0.5.20 and before."""
    kind = module(RADIX).HiRadixCache
    cache = kind.__new__(kind)
    cache.__dict__.update(
        cache_controller=Controller(),
        token_to_kv_pool_host=StandIn(clear=nothing),
        prefetch_loaded_tokens_by_reqid={},
        evictable_host_leaves=set(),
        ongoing_write_through={},
        write_through_threshold=1,
        enable_storage=False,
        enable_storage_metrics=False,
        tp_world_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_group=None,
        attn_tp_group=None,
    )
    params = module("srt.mem_cache.cache_init_params").CacheInitParams(
        disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=StandIn(device="cpu"), page_size=1
    )
    module("srt.mem_cache.radix_cache").RadixCache.__init__(cache, params)
    return cache


base, RadixKey = module("srt.mem_cache.base_prefix_cache"), module("srt.mem_cache.radix_cache").RadixKey


def key(*tokens: int) -> Any:
    """The key of a prompt."""
    return RadixKey(array("q", tokens), None)


host_slots = torch.tensor([0, 1, 2])
if module(RADIX):
    cache = new_radix_cache()
    cache.insert(base.InsertParams(key=key(1, 2), value=torch.tensor([1, 2])))
    cache._insert_helper_host(cache.root_node, key(1, 2, 3), host_slots, HASHES)  # the end of the prefetch
else:
    caches = new_caches(num_slots=8)
    cache = caches.tree_cache
    cache.insert(base.InsertParams(key=key(1, 2), value=caches.token_to_kv_pool_allocator.alloc(2)))
    ended = cache.tree_core.insert_host(cache.tree_core.root_node.id, key(1, 2, 3), host_slots, HASHES)
    print("what was prefetched is dropped:", ended.host_insert_dropped)
with fault_if_raised(AssertionError, "the eviction ends the scheduler"):
    cache.evict(base.EvictParams(num_tokens=2))
print("the two pages are evicted from the device")
