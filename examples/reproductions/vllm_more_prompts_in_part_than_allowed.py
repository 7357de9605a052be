"""vLLM V0, 0.7.3 to 0.10.2: more prompts are computed in part than `max_num_partial_prefills` allows.

With chunked prompts, that many prompts may be computed in part in one step, and they share its tokens. The share is
rounded down. If the tokens of a step are no multiple of the number, some are left, and another prompt begins with them.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from typing import Any

from vllm.core.scheduler import Scheduler
from vllm.sequence import Sequence, SequenceGroup

NUM_TOKENS, NUM_PARTIAL = 2048, 3


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
    chunked_prefill_enabled=True,
    long_prefill_token_threshold=4096,
    max_long_partial_prefills=1,
    max_num_partial_prefills=NUM_PARTIAL,
    max_model_len=8192,
    max_num_batched_tokens=NUM_TOKENS,
    max_num_seqs=16,
    num_lookahead_slots=0,
    num_scheduler_steps=1,
)
caching = Options(block_size=16, enable_prefix_caching=False, num_gpu_blocks=1024, num_cpu_blocks=0)
scheduler = Scheduler(scheduling, caching, None)
for number in range(NUM_PARTIAL + 1):
    seq = Sequence(number, {"type": "token", "prompt_token_ids": [0] * 1024}, 16)
    scheduler.add_seq_group(SequenceGroup(str(number), [seq], 0.0, Options(n=1, max_tokens=8)))
_, outputs, _ = scheduler.schedule()
sizes = [scheduled.token_chunk_size for scheduled in outputs.scheduled_seq_groups]
num_partial = sum(size < 1024 for size in sizes)
print(f"a step computes {sizes} tokens of prompts of 1024: {num_partial} in part, and at most {NUM_PARTIAL} may be")
if num_partial > NUM_PARTIAL:
    sys.exit("one prompt too many is computed in part")
