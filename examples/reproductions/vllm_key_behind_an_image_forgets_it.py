"""vLLM V1 0.6.6 to 0.7.0: the key of a block has the images in it, but no key that follows has them.

Two prompts have the same tokens, and different images in their first blocks. The hash on which the next block's key is
based has the tokens alone, so that both second blocks have one key. A request whose own first block is cached then
reads the KV of the other prompt's second block. Repaired in 0.7.1.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.kv_cache_utils import hash_request_tokens

BLOCK_SIZE = 2


def keys_with(image: str) -> list[Any]:
    """The keys of a prompt of two blocks; the image takes the first one."""
    positions = [{"offset": 0, "length": BLOCK_SIZE}]
    request = SimpleNamespace(all_token_ids=[7, 7, 8, 9], mm_positions=positions, mm_hashes=[image])
    keys: list[Any] = hash_request_tokens(BLOCK_SIZE, request)
    return keys


cat, dog = keys_with("hash of a cat"), keys_with("hash of a dog")
for name, keys in (("a cat", cat), ("a dog", dog)):
    print(f"{name}, then tokens 8 9: {keys}")
if cat[0] == dog[0] or cat[1] == dog[1]:
    sys.exit("the keys of the last blocks are equal: one request would read the KV of the other")
