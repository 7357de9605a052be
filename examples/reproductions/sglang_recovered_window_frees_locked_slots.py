"""SGLang 0.5.14: a prompt that comes again frees the KV of a request that runs (issue 29352).

The unified prefix cache has full attention and a sliding window. A running request holds a node, and the window of this
node has been evicted. Another request has computed the same tokens, and publishes them: the node gets the window again,
and with it the other request's slots of full attention. Those that it had are freed, while the running request reads
them.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from array import array
from typing import Any

import torch
from on_any_engine import fault_if
from on_sglang_windows import COMPONENTS, free_slots, module, new_allocator

base, RadixKey = module("srt.mem_cache.base_prefix_cache"), module("srt.mem_cache.radix_cache").RadixKey
places = (COMPONENTS, f"{COMPONENTS}.tree_component", "srt.mem_cache.unified_cache.components")
kinds = next(module(name).ComponentType for name in places if hasattr(module(name), "ComponentType"))
allocator = new_allocator(num_slots=12)
rows = module("srt.mem_cache.memory_pool").ReqToTokenPool(4, 32, "cpu", False)
params = module("srt.mem_cache.cache_init_params").CacheInitParams(False, rows, allocator, 1)
params.tree_components, params.sliding_window_size = (kinds.FULL, kinds.SWA), 2
cache = module("srt.mem_cache.unified_radix_cache").UnifiedRadixCache(params)


def publish(tokens: list[int], slots: Any, **more: Any) -> None:
    """Insert what a request has computed."""
    cache.insert(base.InsertParams(key=RadixKey(array("q", tokens), None), value=slots, **more))


PREFIX, PROMPT = [1, 2, 3], [1, 2, 3, 4, 5, 6]
first = allocator.alloc(3)
publish(PREFIX, first)  # the first chunk of a prompt, and then all of it
publish(PROMPT, torch.cat([first, allocator.alloc(3)]), prev_prefix_len=3)
found = cache.match_prefix(base.MatchPrefixParams(key=RadixKey(array("q", PROMPT), None)))
held = found.device_indices.tolist()
cache.inc_lock_ref(found.last_device_node)  # a request runs with these slots in its row
cache.evict(base.EvictParams(num_tokens=0, swa_num_tokens=3))  # the window of the first chunk is evicted
publish(PREFIX, allocator.alloc(3))  # another request has computed its tokens, too
lost = sorted(set(held) & free_slots(allocator.full_attn_allocator))
print(f"slots of the request that runs: {held}; of these are free: {lost}")
fault_if(lost, "slots are free that a running request reads")
