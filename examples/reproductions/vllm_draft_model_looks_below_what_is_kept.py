"""vLLM V1, 0.29.0: with a draft model and sliding windows, by default the same prompt hits nothing when it comes again.

`prefix_cache_retention_interval` is 0 by default: of the blocks of a window, only those stay cached that are read when
the same prompt comes again. With EAGLE the last block of a hit is dropped and computed again, so such a hit ends one
block earlier; 0.29.0 keeps the blocks as if it did not. Repaired in 0.30.0 (pull requests 53945 and 54713). Run it with
the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm import kv_config, new_manager, serve, spec, stand_in_request

window = spec("SlidingWindowSpec", sliding_window=4)
config = kv_config(32, spec(), window, prefix_cache_retention_interval=0)
manager = new_manager(config, use_eagle=True)
serve(manager, stand_in_request("first", [0] * 9))
num_hit = manager.get_computed_blocks(stand_in_request("again", [0] * 9))[1]
print(f"a prompt of 9 tokens was computed in blocks of 2; when it comes again, {num_hit} are hit")
fault_if(num_hit < 6, "the block that the draft model drops is the last of 4, so 6 tokens are to be hit")
