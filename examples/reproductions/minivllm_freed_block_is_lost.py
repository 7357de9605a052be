"""MinivLLM (Wenyueh, commit e63c96c5da): no block ever comes back.

`BlockManager` gives a block that it allocates no reference. When the request is over, the count goes from 0 to -1, and
a block is free again only at 0.

Run it with a checkout: `python minivllm_freed_block_is_lost.py CHECKOUT`. It needs numpy and xxhash, and ends with exit
code 1 if the fault is there.
"""

from on_a_checkout import checkout, nano_vllm
from on_any_engine import fault_if

SIZE, NUM_BLOCKS = 256, 8
BlockManager, Sequence = nano_vllm("myvllm", checkout() / "src" / "myvllm")
Sequence.block_size = SIZE
manager = BlockManager(NUM_BLOCKS, SIZE)
for turn in range(1, 6):
    request = Sequence([turn] * 300)  # two blocks
    if not manager.can_allocate(request):
        print(f"request {turn} is refused, although nothing runs")
        break
    manager.allocate(request)
    manager.deallocate(request)
    print(f"request {turn} is over; free blocks: {len(manager.free_block_ids)} of {NUM_BLOCKS}")
fault_if(len(manager.free_block_ids) < NUM_BLOCKS, f"{NUM_BLOCKS - len(manager.free_block_ids)} blocks are lost")
