"""nano-vllm-radix (ProIg-Chaa, commit 0346d7c2cc): the same short prompt twice raises AssertionError.

Run it with a checkout: `python nano_vllm_radix_short_prompt_comes_again.py CHECKOUT`. It needs numpy and xxhash, and
ends with exit code 1 if the fault is there.
"""

from on_a_checkout import checkout, nano_vllm
from on_any_engine import fault_if_raised

SIZE = 256
BlockManager, Sequence = nano_vllm("nanovllm", checkout() / "nanovllm")
Sequence.block_size = SIZE
manager = BlockManager(8, SIZE)
for turn in (1, 2):
    request = Sequence([5, 6, 7])
    with fault_if_raised(AssertionError, f"request {turn}"):
        manager.allocate(request)
    request.num_materialized_tokens = request.num_tokens  # what `postprocess` does
    manager.deallocate(request)
    print(f"request {turn} is over")
