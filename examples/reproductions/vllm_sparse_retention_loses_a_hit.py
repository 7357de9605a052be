"""vLLM V1, 0.29.0 to 0.33.0: by default, a prompt that differs near its end from a cached one hits nothing.

With full attention beside a sliding window, `prefix_cache_retention_interval` says how often the blocks of a window are
kept. Its default is 0: only those blocks are cached in which a hit of the whole prompt ends
(`SlidingWindowManager.reachable_block_mask`). A prompt of 13 tokens is computed, with blocks of 4 tokens for the full
attention and of 2 for a window of 4. Another one has 11 tokens in common with it. The full attention has the first 8 of
them; the window has none of its blocks before these, so nothing is hit. Until 0.28.0 every block was cached (issue
57610, pull request 57613). Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm import kv_config, new_manager, serve, spec, stand_in_request

window = spec("SlidingWindowSpec", block_size=2, sliding_window=4)
config = kv_config(40, spec(block_size=4), window, prefix_cache_retention_interval=0)
manager = new_manager(config, hash_block_size=2, scheduler_block_size=4)
tokens = list(range(13))
serve(manager, stand_in_request("first", tokens))
num_hit = [
    manager.get_computed_blocks(stand_in_request("second", prompt))[1] for prompt in (tokens, [*tokens[:11], 99, 98])
]
print(f"of the same prompt {num_hit[0]} tokens are hit; of one with 11 of its 13 tokens, {num_hit[1]}")
fault_if(num_hit[1] == 0, "8 tokens are cached, and nothing is hit")
