"""vLLM V0, 0.6.5 to 0.9.1: a request is hit for a block that was evicted while it waited, and reads another's KV.

The scheduler asks how many tokens of a waiting prompt are cached, and the block manager remembers the answer. If there
is no room, the request waits, and its cached blocks may be evicted. When there is room, the old answer is used: blocks
that were just allocated are taken as computed. Repaired in 0.9.2 (pull request 18957): the answer is forgotten if the
request is not scheduled.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from typing import Any

from vllm.core.scheduler import Scheduler
from vllm.sequence import Sequence, SequenceGroup, SequenceStatus

BLOCK_SIZE, NUM_BLOCKS = 4, 4


class Options:
    """A configuration: what is given, and None, which is off, for everything else."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


scheduling = Options(
    runner_type="generate",
    task="generate",
    policy="fcfs",
    delay_factor=0.0,
    long_prefill_token_threshold=0,
    max_long_partial_prefills=1,
    max_num_partial_prefills=1,
    max_model_len=64,
    max_num_batched_tokens=64,
    max_num_seqs=4,
    num_lookahead_slots=0,
    num_scheduler_steps=1,
)
caching = Options(block_size=BLOCK_SIZE, enable_prefix_caching=True, num_gpu_blocks=NUM_BLOCKS, num_cpu_blocks=0)
scheduler = Scheduler(scheduling, caching, None)
groups: list[Any] = []
written: dict[int, list[int]] = {}  # the tokens whose KV each block holds


def add(prompt: list[int]) -> Any:
    """A new request, in the scheduler's queue."""
    number = len(groups)
    seq = Sequence(number, {"type": "token", "prompt_token_ids": prompt}, BLOCK_SIZE)
    sampling = Options(n=1, max_tokens=8)
    groups.append(SequenceGroup(str(number), [seq], 0.0, sampling))
    scheduler.add_seq_group(groups[-1])
    return seq


def step() -> bool:
    """Schedule a step and compute it. Returns whether every block that is taken as computed has the right content."""
    metadata, outputs, _ = scheduler.schedule()
    is_right = True
    for data, scheduled in zip(metadata, outputs.scheduled_seq_groups, strict=True):
        (seq,) = scheduled.seq_group.get_seqs()
        table, tokens = data.block_tables[seq.seq_id], seq.get_token_ids()
        parts = [list(tokens[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE]) for i in range(len(table))]
        hit = list(data.computed_block_nums or ()) if data.is_prompt else []
        print(f"request {data.request_id}: blocks {table}, of which {hit} are taken as computed")
        for block, part in zip(hit, parts, strict=False):
            if written.get(block) != part:
                print(f"  block {block} should hold {part}, and holds {written.get(block)}")
                is_right = False
        written.update(zip(table, parts, strict=True))
        scheduled.seq_group.update_num_computed_tokens(scheduled.token_chunk_size)
        seq.append_token_id(0, {0: Options(logprob=0.0)})
    return is_right


def finish(seq: Any) -> None:
    seq.status = SequenceStatus.FINISHED_STOPPED
    scheduler.free_seq(seq)
    scheduler.free_finished_seq_groups()


first = add([1] * 8)
step()
finish(first)
second = add([2] * 8)
step()
add([1] * 16)  # two of its blocks are cached, and there is no room: it waits
step()  # the second request grows, into a block of the first
finish(second)
if not step():
    sys.exit("a block is taken as computed that holds the KV of another request")
