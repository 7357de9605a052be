"""SGLang 0.5.20: HiCache's host evicts no page that the device has too, and takes no other (issue 33862).

HiCache writes every page to the host at once. From 0.5.15 on the host may be smaller than the device. When it is full
of pages that are on the device as well, `evict_host` finds nothing to evict: it takes only nodes that the device has
left. So no further page is written, and what the device then evicts is lost, although the host is full of copies that
nobody needs. Run it with the SGLang that is to be tried: exit code 1 if the fault is there.
"""

from array import array
from typing import Any

import torch
from on_any_engine import StandIn, fault_if, nothing, same
from on_sglang_hicache import SmallHost
from on_sglang_scheduler import module

NUM_HOST_SLOTS = 2
base, radix = module("srt.mem_cache.base_prefix_cache"), module("srt.mem_cache.radix_cache")
kind = module("srt.mem_cache.hiradix_cache").HiRadixCache
cache = kind.__new__(kind)
cache.__dict__.update(
    cache_controller=SmallHost(NUM_HOST_SLOTS),
    token_to_kv_pool_host=StandIn(clear=nothing),
    prefetch_loaded_tokens_by_reqid={},
    evictable_host_leaves=set(),
    ongoing_write_through={},
    kv_cache=None,
    pp_rank=0,
    **same(1, "write_through_threshold tp_world_size pp_size"),
    **same(None, "attn_cp_group attn_tp_group pp_group"),
    **same(False, "enable_storage enable_storage_metrics"),
)
params = module("srt.mem_cache.cache_init_params").CacheInitParams(
    disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=StandIn(device="cpu"), page_size=1
)
radix.RadixCache.__init__(cache, params)


def key(*tokens: int) -> Any:
    """The key of a prompt."""
    return radix.RadixKey(array("q", tokens), None)


for tokens in ((1, 2), (3, 4)):
    cache.insert(base.InsertParams(key=key(*tokens), value=torch.tensor(tokens)))
    cache.writing_check()
nodes = {tuple(node.key.token_ids): node for node in cache.root_node.children.values()}
on_host = {tokens: node.host_value is not None for tokens, node in nodes.items()}
print(f"the device has two prompts, and the host has room for one; prompts that the host has: {on_host}")
assert on_host[(1, 2)], "the host takes nothing at all"
fault_if(not on_host[(3, 4)], "the host keeps what the device has too, and does not take the second prompt")
