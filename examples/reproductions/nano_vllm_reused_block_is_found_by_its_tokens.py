"""Projects with nano-vllm's older block manager: a block that was used again is found for a prefix that it had before.

A block that is taken for something else stays in the index under its old hash. A look-up compares the tokens of the
block with those of the prompt, and not the hash. If the block now has the same tokens at another position, as it has
with padding or blank lines, the prompt gets it: its table names one block twice, and it reads KV of another position.

It shows this of JackeyLove1/super-vllm (commit aff4c106eb), HGinkgo/nano-vllm-runtime (6fd6ee15e9),
potatoZhx/nano-vllm-moe (b7cd44839f) and HuangRZzzz/nano-vllm-GPU-offload (c25959d705). nano-vllm itself drops such an
entry.

Run it with a checkout: `python nano_vllm_reused_block_is_found_by_its_tokens.py CHECKOUT`. It needs numpy and xxhash,
and ends with exit code 1 if the fault is there.
"""

from typing import Any

from on_a_checkout import checkout, nano_vllm
from on_any_engine import fault_if

SIZE, NUM_BLOCKS = 256, 8
BlockManager, Sequence = nano_vllm("nanovllm", checkout() / "nanovllm")
Sequence.block_size = SIZE
HEAD, BLANK = [2] * SIZE, [1] * SIZE  # a block, and one of a repeated token


def begin(tokens: list[int]) -> Any:
    """A request whose prompt is computed."""
    request = Sequence(tokens)
    assert manager.can_allocate(request)
    manager.allocate(request)
    if hasattr(manager, "may_prefill"):  # nano-vllm-GPU-offload publishes blocks when they are computed
        manager.may_prefill(request, request.num_prefill_tokens)
        request.num_computed_tokens = request.num_prefill_tokens
    return request


manager = BlockManager(NUM_BLOCKS, SIZE)
manager.deallocate(begin(HEAD + BLANK + BLANK))  # blocks 0, 1 and 2 are free, and are found by their hashes
other = begin([9] * (5 * SIZE - 1))  # blocks 3 to 7
answering = begin([*HEAD, 1])  # shares block 0, and gets block 2
for _ in range(SIZE - 1):  # its answer fills block 2, which has 1, 1, 1, ... behind one block now
    answering.append_token(1)
    manager.may_append(answering)
manager.deallocate(other)

again = begin(HEAD + BLANK + BLANK)
print(f"the first prompt again: blocks {again.block_table}; tokens that count as computed: {again.num_cached_tokens}")
fault_if(len(set(again.block_table)) < len(again.block_table), "one block stands for two positions of the prompt")
