"""vLLM V1, 0.24.0 to 0.29.0: with a KV connector, a full pool preempts requests whose blocks it does not get.

With asynchronous scheduling and a connector that loads KV, the blocks of a request that a step under way may still
write are given back after that step. A running request needs a block and there is none. The request of the lowest
priority is preempted, its blocks are still kept, and so the next one is preempted, and the next, until the request that
needs the block preempts itself. All of them compute their prompts again, although one of their blocks would have been
enough. From 0.30.0 on, the scheduler waits for the step instead. Run it with the vLLM that is to be tried: exit code 1
if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, new_request, new_scheduler

NUM_REQUESTS, BLOCK_SIZE = 4, 2

# one block is the null block, and one is left
scheduler = new_scheduler(NUM_REQUESTS + 2, 8, connector=Connector(), is_async=True)
for number in range(NUM_REQUESTS):  # prompts that fill a block
    scheduler.add_request(new_request(str(number), [number] * BLOCK_SIZE, arrival_time=float(number)))
num_free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks
print(f"step 0 computes {scheduler.schedule().num_scheduled_tokens}, and is under way; free blocks: {num_free()}")
was_free = num_free()
computed = scheduler.schedule().num_scheduled_tokens  # each of these requests took a block
preempted = [one.request_id for one in scheduler.requests.values() if one.status.name == "PREEMPTED"]
print(f"step 1 computes {computed}; preempted: {preempted}; free blocks: {num_free()}")
is_in_vain = preempted and num_free() + len(computed) == was_free
fault_if(is_in_vain, f"{len(preempted)} requests lost what they had computed, and no block became free")
