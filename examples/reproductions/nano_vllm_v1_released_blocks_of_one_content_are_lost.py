"""nano-vllm-v1 (tang-jiapeng, commit a180672f7c): of two released blocks of one content, one is lost for ever.

`BlockManager._release_block` puts a block into `cached_blocks` under the hash of its content. A block that is there
already is replaced: then it is not free, not cached, and nobody uses it. A prompt that is a multiple of the block size
and comes again is enough, because the last block of a prompt is never shared.

Run it with a checkout: `python nano_vllm_v1_released_blocks_of_one_content_are_lost.py CHECKOUT`. It needs numpy and
xxhash, and ends with exit code 1 if the fault is there.
"""

from on_a_checkout import checkout, nano_vllm
from on_any_engine import fault_if

SIZE, NUM_BLOCKS = 256, 8
BlockManager, Sequence = nano_vllm("nanovllm", checkout() / "nanovllm")
Sequence.block_size = SIZE
manager = BlockManager(NUM_BLOCKS, SIZE)
for turn in range(1, NUM_BLOCKS + 1):  # one prompt, one request after the other
    request = Sequence(list(range(SIZE)))
    _, num_cached, request.num_new_tokens = manager.get_token_layout(request)
    if not manager.can_allocate(num_cached + request.num_new_tokens):
        print(f"request {turn} is refused, although nothing runs")
        break
    manager.allocate(request)
    manager.deallocate(request)
    print(f"request {turn} is over; blocks that can be taken: {manager.num_free_blocks} of {NUM_BLOCKS}")
fault_if(manager.num_free_blocks < NUM_BLOCKS, f"{NUM_BLOCKS - manager.num_free_blocks} blocks are lost")
