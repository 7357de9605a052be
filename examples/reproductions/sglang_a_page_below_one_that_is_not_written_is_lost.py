"""SGLang 0.5.5 to 0.5.10.post1: HiCache loses a host page whose prefix the host has no room for.

A request publishes two tokens, and the host has room for one: they stay on the device only. A later request publishes
these two and a third one, which is written to the host. When the device is freed, the third token leaves it first and
stays on the host. Then the node of the first two is deleted with all that is below it (`HiRadixCache._evict_regular`),
so nothing finds the third token, and nothing frees its slot. From 0.5.12 on, what is below a node that the host does
not have is not written (`write_backup`). Run it with the SGLang that is to be tried: exit code 1 if the fault is there.
"""

import torch
from on_any_engine import StandIn, fault_if, nothing, same
from on_sglang_hicache import SmallHost
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hiradix_cache import HiRadixCache
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

controller = SmallHost(1)
cache = HiRadixCache.__new__(HiRadixCache)
cache.__dict__.update(
    cache_controller=controller,
    token_to_kv_pool_host=StandIn(clear=nothing),
    prefetch_loaded_tokens_by_reqid={},
    evictable_host_leaves=set(),
    ongoing_write_through={},
    enable_storage=False,
    pp_rank=0,
    **same(1, "write_through_threshold tp_world_size pp_size"),
    **same(None, "attn_cp_group attn_tp_group"),
)
pools = {"req_to_token_pool": None, "token_to_kv_pool_allocator": StandIn(device="cpu")}
RadixCache.__init__(cache, CacheInitParams(disable=False, page_size=1, **pools))
for tokens in ([1, 2], [1, 2, 3]):
    cache.insert(InsertParams(key=RadixKey(tokens, None), value=torch.tensor(tokens)))
cache.writing_check()
cache.evict(EvictParams(num_tokens=10))

found, nodes = 0, list(cache.root_node.children.values())
while nodes:
    node = nodes.pop()
    nodes += node.children.values()
    found += len(node.host_value) if node.host_value is not None else 0
taken = 1 - len(controller.free)
print(f"slots of the host that are taken: {taken}; those of tokens that the tree has: {found}")
fault_if(taken != found, f"{taken - found} slot of the host is lost")
