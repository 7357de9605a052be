"""vLLM V0 up to 0.10.2: the evictor names a content that a block no longer holds, and the next allocation fails.

The evictor keeps an entry in its queue for every time that a block was added, and takes an entry for outdated only if
the time of the block's last use differs. A block on the host has no such time (-1), because only blocks of the GPU are
marked as accessed. So if a request is swapped out twice, the first entry of its blocks remains. When such a block was
evicted and holds something else, the old entry is found first, and `_maybe_allocate_evicted_block_id` in
`vllm/core/block/prefix_caching_block.py` fails at `assert content_hash_to_evict in self._cached_blocks`. Run it with
the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from vllm.core.evictor import LRUEvictor

BLOCK, NUM_TOKENS, NEVER_ACCESSED = 0, 2, -1
FIRST, SECOND = 111, 222  # hashes of two contents

evictor = LRUEvictor()
evictor.add(BLOCK, FIRST, NUM_TOKENS, NEVER_ACCESSED)  # a request came back from the host
evictor.remove(BLOCK)  # it is swapped out again, and its block is found
evictor.add(BLOCK, FIRST, NUM_TOKENS, NEVER_ACCESSED)  # and it came back again
print("evicted for another request:", evictor.evict())
evictor.add(BLOCK, SECOND, NUM_TOKENS, NEVER_ACCESSED)  # that request came back too
block, content = evictor.evict()
print("evicted:", (block, content))
fault_if(content != SECOND, f"block {block} holds content {SECOND}, and the evictor names {content}")
