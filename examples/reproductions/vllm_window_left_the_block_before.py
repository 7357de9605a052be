"""vLLM V1 0.9.2: a sliding window that is no wider than a block stops the engine if the prefix cache is on.

A request grows into a block that it fills. The window has left the block before, so that the table has the null block
there. `cache_full_blocks` takes the hash of the block before from the table; the null block has none, and an assertion
fails. A window of one block is enough; the script has blocks of two tokens and a window of two. Repaired in 0.10.1. Run
it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if_raised
from on_vllm import kv_config, new_manager, spec, stand_in_request

manager = new_manager(kv_config(16, spec("SlidingWindowSpec", block_size=2, sliding_window=2)))
request = stand_in_request("request", list(range(12)))
manager.get_computed_blocks(request)
for num_computed in range(12):  # a chunk of one token in each step
    request.num_computed_tokens = num_computed
    with fault_if_raised(AssertionError, f"a window of 2 tokens and blocks of 2: no slot for token {num_computed}"):
        manager.allocate_slots(request, 1)
print("all 12 tokens got their slots")
