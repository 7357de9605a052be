"""vLLM V1, 0.11.0 to 0.33.0: an event says that a content is removed, while another block of this content is hit.

Two requests compute one content, so that two blocks have it. Both requests end, and one of the blocks is taken for
something else. `BlockPool._maybe_evict_cached_block` reports the content as removed, and does not ask whether another
block has it. A router that keeps what it heard of takes the content for gone, and sends the next prompt elsewhere (pull
request 55092). Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import StandIn, fault_if, with_options
from on_vllm import stand_in_request
from vllm.v1.core import block_pool

block_pool.BlockRemoved = lambda **given: StandIn(kind="removed", **given)
block_pool.BlockStored = lambda **given: StandIn(kind="stored", **given)

sizes = {"num_gpu_blocks": 4, "hash_block_size": 2}
pool = with_options(block_pool.BlockPool, enable_caching=True, enable_kv_cache_events=True, **sizes)
request = stand_in_request("twice", [1, 2])
for _ in range(2):
    blocks = pool.get_new_blocks(1)
    part = {"num_cached_blocks": 0, "num_full_blocks": 1, "block_size": 2, "kv_cache_group_id": 0}
    with_options(pool.cache_full_blocks, request=request, blocks=blocks, **part)
    pool.free_blocks(blocks)
pool.get_new_blocks(2)  # the block that was never used, and the first of the two
kinds = [event.kind for event in pool.take_events()]
is_hit = pool.get_cached_block(request.block_hashes[0], [0]) is not None
print(f"events: {kinds}; the content is {'hit' if is_hit else 'not hit'}")
fault_if("removed" in kinds and is_hit, "the content was reported as removed, and is still hit")
