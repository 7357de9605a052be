"""vLLM V1 0.33.0: two transfers of one aborted request: the end of the send frees what is loaded, or stops the engine.

A request waits for KV that a connector loads asynchronously, and is aborted. The connector answers that the KV of the
request is to be sent elsewhere, so two transfers use its blocks. The send ends first: the blocks are freed, and the
load still writes to them. If both end in one step, the end of the load frees the blocks and forgets the request, and
then an assertion about it fails, which stops the engine (issue 46240). Run it with the vLLM that is to be tried: exit
code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, free_blocks, new_request, new_scheduler, transferred
from vllm.v1.request import RequestStatus


def aborted_while_loading() -> tuple[Any, set[int]]:
    """A scheduler, its only request aborted while a connector loads its KV, and the blocks that the load writes to."""
    # the connector can load the first two blocks of every prompt, has not finished any load, and sends what ends
    connector = Connector(lambda request, num_computed: (4 - num_computed, True), sends=True)
    scheduler, request = new_scheduler(8, connector=connector), new_request("first", list(range(5)))
    scheduler.add_request(request)
    scheduler.schedule()
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS, request.status
    (loading,) = scheduler.kv_cache_manager.get_block_ids("first")
    scheduler.finish_requests("first", RequestStatus.FINISHED_ABORTED)
    return scheduler, set(loading)


faults = []
scheduler, loading = aborted_while_loading()
print(f"the connector loads into blocks {sorted(loading)}")
scheduler._update_from_kv_xfer_finished(transferred(finished_sending={"first"}))
print(f"the request is aborted, and its KV is sent; the free blocks are {sorted(free_blocks(scheduler))}")
if written := sorted(free_blocks(scheduler) & loading):
    faults.append(f"blocks {written} are free, and the load still writes to them")

scheduler, _ = aborted_while_loading()
try:
    scheduler._update_from_kv_xfer_finished(transferred(finished_sending={"first"}, finished_recving={"first"}))
except AssertionError:
    faults.append("the load and the send are over in one step: AssertionError")
fault_if(faults, "; ".join(faults))
