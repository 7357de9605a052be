"""vLLM V1 0.33.0: with a draft model and KV groups of two block sizes, a window shortens a hit that is all cached.

The model has layers with full attention, with blocks of 2 tokens, and layers with a sliding window, with blocks of 1
token; a hit ends at a multiple of 2. A request computes 8 tokens, and a longer prompt begins with the same ones. The
full attention finds 8 tokens and drops its last block, so that a hit of 6 tokens is left. The window needs the block
after these, too, and has it; the run of blocks is shorter than the window, because the prompt begins within it.
`SlidingWindowManager.find_longest_cache_hit` then rounds the 7 tokens that it found down to 6, drops a block of them,
and rounds 5 down to 4. It should drop the block first: where the run is as long as the window, it does. Run it with the
vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm import kv_config, new_manager, serve, spec, stand_in_request

FULL_SIZE, WINDOW_SIZE = 2, 1

window = spec("SlidingWindowSpec", WINDOW_SIZE, sliding_window=9)
manager = new_manager(kv_config(32, spec(block_size=FULL_SIZE), window), WINDOW_SIZE, FULL_SIZE, use_eagle=True)
serve(manager, stand_in_request("first", [0] * 8, WINDOW_SIZE))
num_hit = serve(manager, stand_in_request("again", [0] * 9, WINDOW_SIZE))
print(f"{num_hit} of 9 tokens are hit")
fault_if(num_hit < 6, f"a draft model drops one block of 8 cached tokens, so 6 are to be hit; {num_hit} are")
