"""vLLM V0, 0.6.5 to 0.10.2: a prompt is hit although the beginning of its cached prefix was evicted.

Blocks are evicted in the order of their last use, and of blocks with the same time the last one of a prefix goes first.
But a request that is freed sets the time of its blocks to the step in which it ran last, even if another request used
them later. Then the beginning of a prefix is evicted before its end. A look-up searches for the end of the cached
prefix by bisection, so it takes the whole prefix as cached, and the request reads blocks that were never computed.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from itertools import count
from typing import Any

import vllm.core.scheduler
from vllm.core.scheduler import Scheduler
from vllm.sequence import Sequence, SequenceGroup, SequenceStatus

BLOCK_SIZE, NUM_BLOCKS = 4, 8


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
    groups.append(SequenceGroup(str(number), [seq], 0.0, Options(n=1, max_tokens=8)))
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


prompt = [1] * 16
short = add(prompt[:9])
step()
long = add([*prompt, 1])
step()  # a prompt runs alone: the short request does not run in this step
finish(long)
scheduler.abort_seq_group(groups[0].request_id)  # it ran last one step earlier
other = add([2] * 23)
step()  # needs more blocks than are free without eviction
finish(other)
add([*prompt, 1])
if not step():
    sys.exit("a block is taken as computed that holds the KV of another request")
