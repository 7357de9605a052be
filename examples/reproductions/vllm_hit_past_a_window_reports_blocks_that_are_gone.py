"""vLLM V1: a prompt is hit, and blocks before its sliding window are reported as stored that are not cached any more.

A request may ask that the blocks which it hits are reported (`kv_cache_report_mode` "full"), so that a router learns of
them. In a group with a sliding window, a hit names the null block for what lies before the window.
`BlockPool.emit_cached_block_events` takes the number of blocks of the hit, and reports all of them as stored. A router
believes that blocks are there which the engine has given to others. Run it with the vLLM that is to be tried: exit code
1 if the fault is there.
"""

from on_any_engine import StandIn, fault_if, with_options
from on_vllm import kv_config, spec, stand_in_request
from vllm.v1.core import block_pool, kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager

block_pool.BlockRemoved = lambda **given: StandIn(kind="removed", **given)
block_pool.BlockStored = lambda **given: StandIn(kind="stored", **given)
convert = kv_cache_utils.maybe_convert_block_hash

sizes = {"max_model_len": 64, "scheduler_block_size": 1, "hash_block_size": 1}
config = kv_config(5, spec("SlidingWindowSpec", 1, sliding_window=2))
manager = with_options(
    KVCacheManager, kv_cache_config=config, enable_caching=True, enable_kv_cache_events=True, **sizes
)
first = stand_in_request("first", [1, 2, 3, 4], 1)
for start, num_tokens in (0, 3), (3, 1):
    first.num_computed_tokens = start
    manager.allocate_slots(first, num_tokens)
manager.block_pool.get_new_blocks(2)  # those of the first two tokens, which have left the window
manager.take_events()
second = stand_in_request("second", [1, 2, 3, 4, 5], 1, kv_cache_report_mode="full")
num_hit = manager.get_computed_blocks(second)[1]
named = {convert(one): one for one in second.block_hashes}
stored = [named[name] for event in manager.take_events() for name in event.block_hashes]
gone = [one for one in stored if manager.block_pool.get_cached_block(one, [0]) is None]
print(f"a prompt of 5 tokens hits {num_hit}; {len(stored)} blocks are reported as stored, {len(gone)} are not there")
fault_if(gone, "blocks are reported as stored that are not cached")
