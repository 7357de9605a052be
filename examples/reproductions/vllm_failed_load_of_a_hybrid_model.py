"""vLLM V1, 0.11.1 to 0.29.0: a load that fails stops the engine if the model has several KV cache groups.

A connector loads 4 tokens of a prompt, and reports that a block was not loaded (`invalid_block_ids`). With the policy
"recompute" the request is to be computed from there on. `Scheduler._update_requests_with_invalid_blocks` takes the
block ids of the request apart as if there was one group: ValueError. The script has full attention beside a window. In
0.30.0 the request is looked up again; from 0.31.0 on vLLM refuses it on purpose, by a RuntimeError (issue 50687, pull
request 50742). Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if_raised
from on_vllm import spec
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler

connector = Connector(lambda request, num_computed: (0 if request.num_computed_tokens else 4, True))
scheduler = new_scheduler(12, connector=connector, specs=(spec(), spec("SlidingWindowSpec", sliding_window=4)))
scheduler.add_request(new_request("first", [1] * 6))
step = scheduler.schedule()
blocks = scheduler.kv_cache_manager.get_block_ids("first")
print(f"the connector loads into blocks {blocks}, and block {blocks[0][0]} fails")
try:
    with fault_if_raised(ValueError, "the failure is reported"):
        end_step(scheduler, step, arrived=["first"], invalid_block_ids={blocks[0][0]})
except RuntimeError as error:
    print(f"this release refuses it: {error}")
else:
    print(f"the next step computes {scheduler.schedule().num_scheduled_tokens}")
