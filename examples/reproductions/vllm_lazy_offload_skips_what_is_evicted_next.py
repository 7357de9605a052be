"""vLLM 0.29.0 to 0.33.0: the SimpleCPUOffloadConnector's lazy mode skips the blocks that are evicted next.

In each step the lazy mode walks the device's queue of free blocks, in the order of eviction, from the block to which it
came before (`_cursor` in `_prepare_lazy_store_specs`), and stores what the host does not have. A block that is stored
is taken out of the queue, and returns to its end when the copy is over. If that is so before the next step, the cursor
is at the end of the queue: it counts as outdated only while somebody holds its block. So the next steps find nothing
behind it. The blocks at the head are evicted, and the host never got them, although it has room. Run it with the vLLM
that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_simple_offload import Offload

# a step of at most 24 tokens keeps twice as many blocks ready for eviction: four
offload = Offload(num_blocks=10, num_host_blocks=32, max_tokens=24, is_lazy=True)
device = offload.device
device.free_blocks(offload.computed(*(b"%d" % number for number in range(9))))  # the requests are over
stored: set[int] = set()
for number in range(5):
    jobs = offload.step()
    stored.update(jobs.store_gpu_blocks)
    queue = [block.block_id for block in device.free_block_queue.get_all_free_blocks()]
    print(f"step {number} stores {jobs.store_gpu_blocks}; the blocks that are evicted next are {queue[:4]}")
lost = [block.block_id for block in device.get_new_blocks(4) if block.block_id not in stored]
print(f"four blocks of the device are given away; the host does not have {lost}")
fault_if(lost, "these were never stored, although the host has room")
