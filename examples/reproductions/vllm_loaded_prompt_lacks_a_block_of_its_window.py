"""vLLM V1, 0.18.0 to 0.33.0: a prompt that a connector loads as a whole lacks a block that its last token reads.

A model has layers with full attention and layers with a sliding window of 3 tokens; blocks have 2. A connector has the
KV of all 6 tokens of a prompt. The scheduler computes the last token again (`_update_waiting_for_remote_kv`), and that
token reads 3 positions, from position 3 on. But `add_local_computed_blocks` and `allocate_external_computed_blocks`
count what the window leaves from 6 computed tokens on: the entry of positions 2 and 3 has the null block, which is
never written. The first token of the answer is computed from what happens to be there. Run it with the vLLM that is to
be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm import spec
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler

WINDOW, BLOCK_SIZE = 3, 2

connector = Connector(lambda request, num_computed: (6 - num_computed, True))
kinds = spec(), spec("SlidingWindowSpec", sliding_window=WINDOW)
scheduler = new_scheduler(12, connector=connector, specs=kinds, is_caching=True)
scheduler.add_request(new_request("first", [1, 2, 3, 4, 5, 6], hash_block_size=BLOCK_SIZE))
end_step(scheduler, scheduler.schedule(), arrived=["first"])
step = scheduler.schedule()
print(f"the next step computes {step.num_scheduled_tokens}")
position = scheduler.requests["first"].num_computed_tokens - 1  # of the token that the step computes
read = range((position + 1 - WINDOW) // BLOCK_SIZE, position // BLOCK_SIZE + 1)
table = scheduler.kv_cache_manager.get_block_ids("first")[1]
null = scheduler.kv_cache_manager.block_pool.null_block.block_id
print(f"it reads the blocks at {list(read)} of {table}; {null} is the null block")
fault_if(null in [table[index] for index in read], "the last token of the prompt reads the null block")
