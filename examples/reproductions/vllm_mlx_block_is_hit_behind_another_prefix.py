"""vllm-mlx (waybarrios, commit 4b654c09e6): a cached block is found by its own tokens, not by those before it.

`BlockAwarePrefixCache`, which the engine uses, stores blocks by `register_block_hash` and finds them by
`find_shared_prefix`. Their hash is over the tokens of one block alone. The KV of a token depends on all tokens before
it, so a prompt reads KV that was computed behind other tokens.

Run it with a checkout: `python vllm_mlx_block_is_hit_behind_another_prefix.py CHECKOUT`. It ends with exit code 1 if
the fault is there.
"""

import importlib

from on_a_checkout import checkout, without_init
from on_any_engine import fault_if

SIZE = 4
without_init("vllm_mlx", checkout() / "vllm_mlx")
cache = importlib.import_module("vllm_mlx.paged_cache").PagedCacheManager(block_size=SIZE, max_blocks=10)
table = cache.create_block_table("first")
tokens = [1, 1, 1, 1, 7, 8, 9, 10]
for begin in (0, SIZE):  # what `store_cache` does with each full block
    block = cache.allocate_block()
    cache.add_block_to_table(table, block, SIZE)
    cache.register_block_hash(block, tokens[begin : begin + SIZE])

prompt = [7, 8, 9, 10, 2, 3]
blocks, rest = cache.find_shared_prefix(prompt)  # what `fetch_cache` does
print(f"the prompt {prompt} hits blocks {blocks}; still to be computed: {rest}")
print(f"the look-up with the tokens before a block finds {cache.get_computed_blocks(prompt)[1]} tokens")
fault_if(blocks, "the prompt reads KV that was computed behind 1, 1, 1, 1")
