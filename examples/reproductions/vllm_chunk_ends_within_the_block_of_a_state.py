"""vLLM V1, 0.20.2 to 0.33.0: a state of fewer tokens than its hash says is found in the prefix cache.

A model has layers with full attention in blocks of 2 tokens, layers with a window in blocks of 4, and layers with a
state (Mamba, mode "align") in blocks of 4. `Scheduler._mamba_block_aligned_split` cuts chunks at multiples of the
smallest of these sizes, which the engine keeps as `cache_config.block_size`. So a chunk ends behind 6 tokens, within a
block of states, and the next one goes on to 10: the block has the state after 6 tokens for ever, and gets the hash of
the first 8. The same prompt then hits 8 tokens and begins with the state of 6: wrong answers (pull request 54076). Run
it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm import spec
from on_vllm_scheduler import end_step, new_request, new_scheduler

STATES = 2  # the number of the group
kinds = spec(), spec("SlidingWindowSpec", 4, sliding_window=4), spec("MambaSpec", 4)
scheduler = new_scheduler(60, 16, specs=kinds, is_caching=True, common_block_size=4, max_num_batched_tokens=6)
scheduler.add_request(new_request("first", list(range(11)), hash_block_size=2))
num_computed, state_in = 0, {}  # by block: the number of tokens whose state it has
while num_computed < 11:
    step = scheduler.schedule()
    num_computed += step.num_scheduled_tokens["first"]
    block = scheduler.kv_cache_manager.get_block_ids("first")[STATES][-1]
    state_in[block] = num_computed
    print(f"a step leaves the state after {num_computed} tokens in block {block}")
    end_step(scheduler, step)
found, num_hit, *_ = scheduler.kv_cache_manager.get_computed_blocks(
    new_request("second", list(range(11)), hash_block_size=2)
)
blocks = found.get_block_ids()[STATES]
print(f"the same prompt hits {num_hit} tokens, and blocks {blocks} of states")
fault_if(num_hit and state_in[blocks[-1]] != num_hit, f"the state is that of {state_in.get(blocks[-1])} tokens")
