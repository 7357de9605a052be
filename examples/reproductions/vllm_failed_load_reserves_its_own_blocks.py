"""vLLM V1, 0.23.0 to 0.33.0: a request whose load failed waits for ever, because it reserves its own blocks.

A request that waits for KV counts as a prefill in flight, and a load is let in only if the blocks that these still need
stay free. If nothing of a load is there (`invalid_block_ids` with the first block, or `failed_recving`), the request
gives its blocks up and is looked up again, and its connector wants to load again. It is still counted as in flight: so
it has to fit twice. A prompt that is longer than half of the pool never runs again, though nothing else is there. Run
it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, loading_in, new_request, new_scheduler

connector = Connector(lambda request, num_computed: (2, True))
scheduler = new_scheduler(7, connector=connector)
scheduler.add_request(new_request("first", [1] * 11, max_tokens=1))
step = scheduler.schedule()
((block, *_),) = scheduler.kv_cache_manager.get_block_ids("first")
print(f"the request loads 2 tokens into block {block}, which fails")
end_step(scheduler, step, arrived=["first"], invalid_block_ids={block})
for _ in range(3):
    step = scheduler.schedule()
    is_begun = bool(loading_in(scheduler)) and any(scheduler.kv_cache_manager.get_block_ids("first"))
    print(f"a step computes {step.num_scheduled_tokens}; the request is loaded again: {is_begun}")
    if is_begun or step.num_scheduled_tokens:
        break
    end_step(scheduler, step)
fault_if(not (is_begun or step.num_scheduled_tokens), "an empty pool, and its only request waits for ever")
