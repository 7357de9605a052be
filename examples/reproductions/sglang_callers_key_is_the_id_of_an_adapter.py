"""SGLang 0.5.9 to 0.5.23: a request without an adapter hits the KV of an adapter whose id is its key (issue 24638).

`Req` appends the id of the adapter to the `extra_key` of the caller, and the prefix cache sees the result only.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from on_any_engine import fault_if
from on_sglang_scheduler import module, new_caches, new_request

TOKENS, ID = [1, 2, 3, 4], "9f3c"
caches, base = new_caches(num_slots=16), module("srt.mem_cache.base_prefix_cache")
RadixKey = module("srt.mem_cache.radix_cache").RadixKey
with_adapter = new_request("with the adapter", TOKENS, lora_id=ID)
without = new_request("without an adapter", [*TOKENS, 5], extra_key=ID)

slots = caches.token_to_kv_pool_allocator.alloc(len(TOKENS))
published = RadixKey(with_adapter.origin_input_ids, with_adapter.extra_key)
caches.tree_cache.insert(base.InsertParams(key=published, value=slots))
asked = RadixKey(without.origin_input_ids, without.extra_key)
found = caches.tree_cache.match_prefix(base.MatchPrefixParams(key=asked))
num_hit = len(found.device_indices) if hasattr(found, "device_indices") else found.device_prefix_len
print(f"tokens of the request without an adapter that are hit: {num_hit} of {len(TOKENS)}")
fault_if(num_hit, "it reads what the adapter has computed")
