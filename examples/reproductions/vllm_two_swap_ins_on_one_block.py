"""vLLM V0, 0.6.5 to 0.10.2: two requests that come back from the host in one step are copied into the same block.

With the prefix cache and preemption by swapping, a request comes back into a block, and its next token fills that
block. If a block of equal content is cached, the request takes the cached one and gives its own back at once
(`promote_to_immutable_block` in `vllm/core/block/prefix_caching_block.py`). The next request that comes back gets the
block that was given up, and the step has two copies into it. They are right only in the order of the list, which
nothing promises: in the other order, or side by side, the second request reads the KV of the first one.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from itertools import count
from typing import Any

import vllm.core.scheduler
from vllm.core.scheduler import Scheduler
from vllm.sequence import Sequence, SequenceGroup, SequenceStatus

BLOCK_SIZE, NUM_BLOCKS, NUM_HOST_BLOCKS = 2, 4, 8


class Options:
    """A configuration: what is given, and None, which is off, for everything else."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


clock = count(1.0)  # no two readings are equal
vllm.core.scheduler.time = Options(time=clock.__next__, perf_counter=clock.__next__)
scheduling = Options(
    runner_type="generate",
    task="generate",
    policy="fcfs",
    preemption_mode="swap",
    delay_factor=0.0,
    long_prefill_token_threshold=0,
    max_long_partial_prefills=1,
    max_num_partial_prefills=1,
    max_model_len=4,
    max_num_batched_tokens=64,
    max_num_seqs=4,
    num_lookahead_slots=0,
    num_scheduler_steps=1,
)
caching = Options(
    block_size=BLOCK_SIZE,
    enable_prefix_caching=True,
    num_gpu_blocks=NUM_BLOCKS,
    num_cpu_blocks=NUM_HOST_BLOCKS,
)
scheduler = Scheduler(scheduling, caching, None)
Content = tuple[int, ...]
device: dict[int, Content] = {}  # the tokens whose KV each block holds
host: dict[int, Content] = {}
outputs_of: dict[int, list[int]] = {}  # the tokens that a request will still generate


def add(prompt: list[int], generates: list[int]) -> None:
    """A new request, in the scheduler's queue."""
    number = len(outputs_of)
    outputs_of[number] = generates
    seq = Sequence(number, {"type": "token", "prompt_token_ids": prompt}, BLOCK_SIZE)
    sampling = Options(n=1, max_tokens=len(generates))
    scheduler.add_seq_group(SequenceGroup(str(number), [seq], 0.0, sampling))


def compute(seq: Any, table: list[int], num_done: int) -> bool:
    """Compute the tokens of a sequence from the first `num_done` on. Returns whether what it reads is its own KV."""
    tokens = tuple(seq.get_token_ids())
    parts = [tokens[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE] for i in range(len(table))]
    is_right = True
    for index, (block, part) in enumerate(zip(table, parts, strict=True)):
        read = part[: max(0, num_done - index * BLOCK_SIZE)]
        held = device.get(block, ())[: len(read)]
        if held != read:
            print(f"  request {seq.seq_id} reads block {block}, which should hold {read}, and holds {held}")
            is_right = False
    device.update(zip(table, parts, strict=True))
    return is_right


def step(is_in_order: bool) -> bool:
    """Do one step, with its swap-ins in the order of the list or in the other one. Returns whether it reads right."""
    metadata, outputs, _ = scheduler.schedule()
    for source, target in outputs.blocks_to_swap_out:
        host[target] = device[source]
    swap_in = list(outputs.blocks_to_swap_in)
    print(f"swaps out {list(outputs.blocks_to_swap_out)}, swaps in {swap_in}")
    for source, target in swap_in if is_in_order else reversed(swap_in):
        device[target] = host[source]
    is_right = True
    for data, scheduled in zip(metadata, outputs.scheduled_seq_groups, strict=True):
        (seq,) = scheduled.seq_group.get_seqs()
        table = data.block_tables[seq.seq_id]
        print(f"  request {seq.seq_id} with tokens {seq.get_token_ids()} has blocks {table}")
        is_right &= compute(seq, table, seq.data.get_num_computed_tokens())
        scheduled.seq_group.update_num_computed_tokens(scheduled.token_chunk_size)
        token, *later = outputs_of[seq.seq_id]
        seq.append_token_id(token, {token: Options(logprob=0.0)})
        outputs_of[seq.seq_id] = later
        if not later:
            seq.status = SequenceStatus.FINISHED_STOPPED
            scheduler.free_seq(seq)
    scheduler.free_finished_seq_groups()
    return is_right


add([1], generates=[1, 0, 0])
add([0], generates=[1, 0, 0])
add([0], generates=[0, 0, 0])
add([0], generates=[1, 0])
for _ in range(3):  # the last two requests are swapped out, and the first two end
    step(is_in_order=True)
if not step(is_in_order=False):
    sys.exit("two swap-ins of one step land on one block, so a request reads the KV of another one")
