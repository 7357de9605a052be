"""vLLM V1, 0.11.0 to 0.32.0: with priorities, a request that preempts itself ends the loop over those that run.

Three requests run, and the first one matters least. It needs a block when none is free, so it preempts itself, which
frees two blocks. The loop over the running requests ends there (`Scheduler.schedule`): the other two need one block
each, which are free now, and get no token in this step. From 0.33.0 on the loop goes on (pull request 26765). Run it
with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import end_step, new_request, new_scheduler

scheduler = new_scheduler(7, policy="priority", max_num_seqs=16)
scheduler.add_request(new_request("unimportant", [1] * 3, max_tokens=8, priority=9))
end_step(scheduler, scheduler.schedule())
for number, name in enumerate(("first", "second"), 1):
    scheduler.add_request(new_request(name, [2] * 4, max_tokens=8, priority=1, arrival_time=float(number)))
end_step(scheduler, scheduler.schedule())
computed = scheduler.schedule().num_scheduled_tokens
num_free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
print(f"a step computes {computed}, and leaves {num_free} blocks free")
left = [one.request_id for one in scheduler.running if one.request_id not in computed]
fault_if(left and num_free >= len(left), f"{left} run, need a block each, and get no token")
