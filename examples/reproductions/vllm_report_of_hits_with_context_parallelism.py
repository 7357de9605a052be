"""vLLM V1, 0.27.1 to 0.33.0: with context parallelism, the report of a hit to routers ends the engine.

With two context parallel ranks a block has a page of two tokens on each of them, and hashes are those of whole blocks,
of four tokens. A request with `kv_cache_report_mode` "full" reports also the blocks that it hits.
`KVCacheCoordinator.emit_cached_block_events` passes the size of a page as that of a block, so an assertion fails: the
page is no multiple of what is hashed (issue 49971, pull request 50118). Run it with the vLLM that is to be tried: exit
code 1 if the fault is there.
"""

from on_any_engine import fault_if_raised, with_options
from on_vllm import kv_config, serve, spec, stand_in_request
from vllm.v1.core.kv_cache_manager import KVCacheManager

PAGE, RANKS = 2, 2
BLOCK = PAGE * RANKS

manager = with_options(
    KVCacheManager,
    kv_cache_config=kv_config(8, spec(block_size=PAGE)),
    max_model_len=64,
    scheduler_block_size=BLOCK,
    hash_block_size=BLOCK,
    enable_caching=True,
    enable_kv_cache_events=True,
    dcp_world_size=RANKS,
)
prompt = [0] * (BLOCK + 1)
serve(manager, stand_in_request("first", prompt, BLOCK))
with fault_if_raised(AssertionError, "a prompt that hits a block of the first one is reported by the size of a page"):
    num_hit = serve(manager, stand_in_request("second", prompt, BLOCK, kv_cache_report_mode="full"))
print(f"the second prompt hits {num_hit} tokens, and {len(manager.take_events())} events are reported")
