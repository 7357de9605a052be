"""vLLM V1, 0.20.2 to 0.33.0: a user gets a token that was computed from KV which is not there.

A connector loads 4 of the 5 tokens of a prompt within the step, and the next step is launched before the results of
this one are there. The first result says that a block was not loaded. Its token is dropped; but the next step was
computed from the same KV, and its token is taken for the first one of the answer. A preemption marks the results of
such steps as stale; a failed load does not. Run it with the vLLM that is to be tried: exit code 1 if the fault is
there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler

connector = Connector(lambda request, num_computed: (0 if request.num_computed_tokens else 4, False))
scheduler = new_scheduler(12, connector=connector, is_async=True)
request = new_request("first", [1] * 5)
scheduler.add_request(request)
first, second = scheduler.schedule(), scheduler.schedule()
((block, *_),) = scheduler.kv_cache_manager.get_block_ids("first")
print(f"two steps are under way: {first.num_scheduled_tokens}, {second.num_scheduled_tokens}; block {block} fails")
end_step(scheduler, first, sampled={"first": [7]}, invalid_block_ids={block})
end_step(scheduler, second, sampled={"first": [8]})
answer = list(request.output_token_ids)
print(f"nothing of the prompt has KV; the answer is {answer}")
fault_if(bool(answer), "a token that was computed from missing KV is delivered")
