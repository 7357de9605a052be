"""vLLM 0.30.0 to 0.33.0: with the SimpleCPUOffloadConnector's lazy mode, a server without requests copies for ever.

In each step the lazy mode walks on in the device's queue of free blocks, and stores what the host does not have
(`_prepare_lazy_store_specs`). A block that was stored returns to the end of the queue, behind the place to which the
walk came, so it is met again. If the host has fewer blocks than the device has cached, it has lost the block by then,
and the block is stored again. While a store is under way, `has_pending_push_work` keeps the engine's loop going, and
each of its steps begins the next store before the one before is over. Run it with the vLLM that is to be tried: exit
code 1 if the fault is there.
"""

from on_any_engine import StandIn, fault_if, same
from on_vllm_simple_offload import Offload
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

NUM_CACHED, NUM_HOST_BLOCKS, NUM_STEPS = 4, 2, 1_000

offload = Offload(num_blocks=NUM_CACHED + 1, num_host_blocks=NUM_HOST_BLOCKS, is_lazy=True)
cached = offload.computed(*(b"%d" % number for number in range(NUM_CACHED)))
nobody = {"finished_req_ids": set(), **same(None, "preempted_req_ids kv_connector_block_state")}
stored = num_steps = 0
under_way: list[int] = []
while num_steps < 2 or (offload.connector.has_pending_stores() and num_steps < NUM_STEPS):  # as the engine's loop does
    if num_steps < 2:  # a first request is over before the others
        offload.device.free_blocks(cached[:1] if num_steps == 0 else cached[1:])
    jobs = offload.connector.build_connector_meta(StandIn(**nobody))
    for event in under_way:  # the worker reports a copy with the step after the one that began it
        done = SimpleCPUOffloadWorkerMetadata({event: 1})
        offload.connector.update_connector_output(StandIn(finished_recving=None, kv_connector_worker_meta=done))
    under_way = [jobs.store_event] if jobs.store_gpu_blocks else []
    stored += len(jobs.store_gpu_blocks)
    num_steps += 1
print(f"{NUM_CACHED} blocks are cached, the host has room for {NUM_HOST_BLOCKS}: {num_steps} steps, {stored} copies")
fault_if(num_steps == NUM_STEPS, "without a request, the engine goes on and copies the same blocks again and again")
