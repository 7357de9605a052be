"""vLLM V1, 0.20.2 to 0.33.0: after a failed load, what another request computed from it stays cached.

A connector loads 2 tokens of a prompt within the step. A second request with these tokens is let in by the same step,
hits the block, and computes behind it. Then the block is reported as not filled. With the policy "fail" both requests
end, and the blocks of the first one are evicted from the cache; those that the second one computed from the missing KV
stay. A third request that has computed the first block itself finds them. Run it with the vLLM that is to be tried:
exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler

connector = Connector(lambda request, num_computed: (2 if request.request_id == "first" else 0, False))
scheduler = new_scheduler(20, connector=connector, is_caching=True)
scheduler.recompute_kv_load_failures = False  # `kv_load_failure_policy` "fail"
scheduler.add_request(new_request("first", [1, 2, 3], hash_block_size=2))
scheduler.add_request(new_request("second", [1, 2, 5, 6, 7], hash_block_size=2))
step = scheduler.schedule()
((failed, *_),) = scheduler.kv_cache_manager.get_block_ids("first")
((shared, behind, *_),) = scheduler.kv_cache_manager.get_block_ids("second")
print(f"block {failed} fails; the second request has blocks {shared}, {behind}: {step.num_scheduled_tokens}")
end_step(scheduler, step, invalid_block_ids={failed})
print(f"the scheduler still has {sorted(scheduler.requests)}")
scheduler.add_request(new_request("third", [1, 2, 9], max_tokens=1, hash_block_size=2))
end_step(scheduler, scheduler.schedule())
scheduler.add_request(new_request("fourth", [1, 2, 5, 6, 7], hash_block_size=2))
step = scheduler.schedule()
((_, found, *_),) = scheduler.kv_cache_manager.get_block_ids("fourth")
print(f"the fourth request has block {found} behind the shared one: {step.num_scheduled_tokens}")
fault_if(found == behind and step.num_scheduled_tokens["fourth"] < 3, "what was computed from missing KV is a hit")
