"""vLLM V1 0.11.0: with priorities, a step computes a request that was preempted while the step was scheduled.

Two requests run, and take a block each. The second one matters less. A third one, as important as the first, takes the
last block. When it needs another one, the second request is preempted, which has its place in the step already. Its
blocks are freed, and it stays in `num_scheduled_tokens`: the worker computes a token of a request that has no blocks.
Repaired in 0.11.1. Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import new_request, new_scheduler

scheduler = new_scheduler(4, 12, block_size=4, policy="priority")
requests = [
    new_request("first", [0] * 2),
    new_request("unimportant", [0] * 2, arrival_time=1.0, priority=2),
    new_request("last", [0] * 4, arrival_time=2.0),
]
for arriving in (requests[:2], requests[2:], [], []):
    for one in arriving:
        scheduler.add_request(one)
    computed = scheduler.schedule().num_scheduled_tokens
    print(f"a step computes {computed}")
    without_blocks = [name for name in computed if not any(scheduler.kv_cache_manager.get_block_ids(name))]
    fault_if(without_blocks, f"the step computes {without_blocks}, which have no blocks")
    for one in requests:
        if one.request_id in computed:
            one.append_output_token_ids(0)
