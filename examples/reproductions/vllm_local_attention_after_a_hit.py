"""vLLM V1 0.10.0: a prompt that is repeated stops the engine if a model has chunked local attention.

The model has layers with full attention and layers with local attention, in chunks. A request computes a prompt that is
a little longer than a chunk, and ends. The same prompt comes again, and all of its first chunk is hit. The layers with
local attention need no block of that chunk, so their table begins with null blocks. `cache_full_blocks` then takes the
hash of the block before the first new one from the table; the null block has none, and an assertion fails. Repaired in
0.10.1. Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if_raised
from on_vllm import kv_config, new_manager, serve, spec, stand_in_request

BLOCK_SIZE, CHUNK = 2, 4

manager = new_manager(kv_config(16, spec(), spec("ChunkedLocalAttentionSpec", attention_chunk_size=CHUNK)))
first = stand_in_request("first", [0] * (CHUNK + BLOCK_SIZE))
serve(manager, first)
manager.free(first)
with fault_if_raised(AssertionError, f"a request that is hit as far as the end of a chunk of {CHUNK} gets no slots"):
    print(f"{serve(manager, stand_in_request('again', first.all_token_ids))} of {CHUNK + BLOCK_SIZE} tokens are hit")
