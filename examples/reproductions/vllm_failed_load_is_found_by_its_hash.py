"""vLLM V1, 0.20.2 to 0.33.0: a block into which a load failed is found by its hash, and read.

A connector loads within the step, and the blocks that it fills are cached at once. It reports one that it did not fill
(`invalid_block_ids`). With the policy "recompute" the block stays cached, since its request is to compute it in the
next step. But the request may leave before: here its user does, and a preemption does the same. The next request with
this prompt finds the block, and reads what nobody has written. Run it with the vLLM that is to be tried: exit code 1 if
the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler
from vllm.v1.request import RequestStatus

connector = Connector(lambda request, num_computed: (0 if request.request_id == "second" else 4 - num_computed, False))
scheduler = new_scheduler(12, connector=connector, is_caching=True)
scheduler.add_request(new_request("first", [1, 2, 3, 4, 5], hash_block_size=2))
step = scheduler.schedule()
((failed, *_),) = scheduler.kv_cache_manager.get_block_ids("first")
print(f"the step loads 4 tokens of the first request and computes {step.num_scheduled_tokens}; block {failed} fails")
end_step(scheduler, step, invalid_block_ids={failed})
scheduler.finish_requests("first", RequestStatus.FINISHED_ABORTED)
scheduler.add_request(new_request("second", [1, 2, 3, 4, 5], hash_block_size=2))
step = scheduler.schedule()
((block, *_),) = scheduler.kv_cache_manager.get_block_ids("second")
num_computed = step.num_scheduled_tokens["second"]
print(f"the first one is gone; the second one has block {block}, and computes {num_computed} of its 5 tokens")
fault_if(block == failed and num_computed < 5, "a block into which nothing was loaded is a hit")
