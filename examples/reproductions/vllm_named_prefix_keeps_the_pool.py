"""vLLM 0.3.0 to 0.3.3: the blocks of a named prefix (`prefix_pos`) are never given back, and later requests hang.

A request of four tokens names all of them as its prefix, and ends. `Prefix.block_table` holds its two blocks from then
on: `PrefixPool` has no limit, and nothing removes a prefix. A request of three blocks would fit the pool of four, but
two are left. `BlockSpaceManager.can_allocate` compares it with the whole pool, so it does not say NEVER, and LATER
cannot come true, since nothing runs. The scheduler leaves the request at the head of its queue, where it stops those
behind it too: `LLMEngine.step` schedules nothing any more. 0.4.0 has no named prefixes. Run it with the vLLM that is to
be tried: exit code 1 if the fault is there.
"""

import importlib.util
import sys
from typing import Any

from on_any_engine import StandIn, fault_if

if importlib.util.find_spec("vllm.prefix") is None:
    print("this release has no named prefixes")
    sys.exit()

from vllm.core.block_manager import AllocStatus, BlockSpaceManager
from vllm.prefix import PrefixPool
from vllm.sequence import SequenceStatus

BLOCK_SIZE, NUM_BLOCKS = 2, 4


def group_of(number: int, tokens: list[int], prefix: Any = None) -> Any:
    """A waiting request with one sequence: what the manager reads of it."""
    num_blocks = -(-len(tokens) // BLOCK_SIZE)
    seq = StandIn(seq_id=number, logical_token_blocks=[None] * num_blocks, status=SequenceStatus.WAITING)
    return StandIn(prefix=prefix, get_seqs=lambda status=None: [seq], num_seqs=lambda status=None: 1)


manager = BlockSpaceManager(BLOCK_SIZE, NUM_BLOCKS, 0, watermark=0.0)
tokens = [1, 2, 3, 4]
first = group_of(1, tokens, PrefixPool(BLOCK_SIZE).add_or_get_prefix(tokens, 0))
assert manager.can_allocate(first) is AllocStatus.OK
manager.allocate(first)
first.prefix.computed = True  # as the engine does after a step
manager.free(first.get_seqs()[0])

answer, num_free = manager.can_allocate(group_of(2, [5] * 6)), manager.get_num_free_gpu_blocks()
print(f"nothing runs, and {num_free} of {NUM_BLOCKS} blocks are free; a request of 3 blocks: {answer.name}")
fault_if(answer is AllocStatus.LATER, "nothing runs that could give blocks back, and the pool would hold the request")
