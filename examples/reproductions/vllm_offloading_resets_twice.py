"""vLLM 0.26.0 to 0.33.0: the OffloadingConnector raises if it is reset twice between two steps.

A request computes a block, and a store of it is under way. `reset_prefix_cache` with `reset_connector=True` resets the
connector, which keeps the store in `_current_batch_jobs_to_flush` for the next step. A second reset before that step
asserts that this set is empty. The engine handles all calls that have arrived before it does a step, so two calls of
`/reset_prefix_cache?reset_external=true` suffice: the second one fails, and the device is reset without the connector.
Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if_raised
from on_vllm_offloading import Offloading
from on_vllm_scheduler import new_request, new_scheduler

connector = Offloading(block_size=2)
scheduler = new_scheduler(8, connector=connector)
scheduler.add_request(new_request("first", [0] * 3, hash_block_size=2))
scheduler.schedule()
print(f"a step of 3 tokens stores: {list(connector.jobs.store_jobs)}")
connector.real.reset_cache()
with fault_if_raised(AssertionError, "the second reset raises, since the first one waits for the store"):
    connector.real.reset_cache()
print("the second reset changes nothing")
