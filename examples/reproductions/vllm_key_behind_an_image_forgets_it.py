"""vLLM V1 0.6.6 to 0.7.0: the key of a block has the images in it, but no key that follows has them.

Two prompts have the same tokens, and different images in their first blocks. The hash on which the next block's key is
based has the tokens alone, so that both second blocks have one key. A request whose own first block is cached then
reads the KV of the other prompt's second block. Repaired in 0.7.1. Run it with the vLLM that is to be tried: exit code
1 if the fault is there.
"""

from on_any_engine import StandIn, fault_if
from vllm.v1.core.kv_cache_utils import hash_request_tokens

BLOCK_SIZE = 2

positions = [{"offset": 0, "length": BLOCK_SIZE}]  # the image takes the first of two blocks
cat, dog = (
    hash_request_tokens(
        BLOCK_SIZE, StandIn(all_token_ids=[7, 7, 8, 9], mm_positions=positions, mm_hashes=[f"hash of {image}"])
    )
    for image in ("a cat", "a dog")
)
print(f"a cat, then tokens 8 9: {cat}")
print(f"a dog, then tokens 8 9: {dog}")
is_equal = cat[0] == dog[0] or cat[1] == dog[1]
fault_if(is_equal, "the keys of the last blocks are equal: one request would read the KV of the other")
