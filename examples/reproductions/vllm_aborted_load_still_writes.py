"""vLLM V1, up to 0.15.1: an aborted request gives up its blocks while a KV connector still loads into them.

A request waits for KV that a connector loads asynchronously. It is aborted, and its blocks go back to the pool at once.
The next request gets them, and the load, which nobody has stopped, writes into its KV. Repaired in 0.16.0 (pull request
32255): the blocks are freed when the connector reports the load as finished. Run it with the vLLM that is to be tried:
exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, free_blocks, new_request, new_scheduler
from vllm.v1.request import RequestStatus

# the connector can load the first two blocks of every prompt, and has not finished any load
scheduler = new_scheduler(8, connector=Connector(lambda request, num_computed: (4 - num_computed, True)))
request = new_request("first", list(range(5)))
scheduler.add_request(request)
scheduler.schedule()
(loading,) = scheduler.kv_cache_manager.get_block_ids("first")
assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS, request.status
print(f"the connector loads into blocks {loading}")

scheduler.finish_requests("first", RequestStatus.FINISHED_ABORTED)
print(f"the request is aborted; the free blocks are {sorted(free_blocks(scheduler))}")
written = sorted(free_blocks(scheduler) & set(loading))
fault_if(written, f"blocks {written} are free, and the load still writes to them")
