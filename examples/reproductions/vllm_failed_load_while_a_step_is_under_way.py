"""vLLM V1, 0.11.1 to 0.33.0: after a failed load, an asynchronous step computes tokens that do not exist.

A connector loads 4 of the 5 tokens of a prompt within the step, and the next step is scheduled before the results of
this one are there: the request has a placeholder for each token that is under way. The first result says that a block
was not loaded. `Scheduler._update_requests_with_invalid_blocks` sets the number of computed tokens back and leaves the
placeholders, so the next step computes the 5 tokens and the placeholders behind them (issue 45138, pull requests 45146
and 45430). Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler

NUM_TOKENS = 5

connector = Connector(lambda request, num_computed: (0 if request.num_computed_tokens else 4, False))
scheduler = new_scheduler(12, connector=connector, is_async=True)
request = new_request("first", [1] * NUM_TOKENS)
scheduler.add_request(request)
first, second = scheduler.schedule(), scheduler.schedule()
((block, *_),) = scheduler.kv_cache_manager.get_block_ids("first")
print(f"two steps are under way: {first.num_scheduled_tokens}, {second.num_scheduled_tokens}; block {block} fails")
end_step(scheduler, first, invalid_block_ids={block})
num_known, computed = request.num_tokens, scheduler.schedule().num_scheduled_tokens
print(f"the request has {num_known} tokens, and is computed from its first one on; the next step computes {computed}")
fault_if(computed.get("first", 0) > num_known, "a step computes tokens that do not exist")
