"""vLLM V0, 0.7.3 to 0.10.2: more prompts are computed in part than `max_num_partial_prefills` allows.

With chunked prompts, that many prompts may be computed in part in one step, and they share its tokens. The share is
rounded down. If the tokens of a step are no multiple of the number, some are left, and another prompt begins with them.
Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_v0 import Engine

NUM_PARTIAL = 3

engine = Engine(
    block_size=16,
    num_blocks=1024,
    chunked_prefill_enabled=True,
    long_prefill_token_threshold=4096,
    max_num_partial_prefills=NUM_PARTIAL,
    max_model_len=8192,
    max_num_batched_tokens=2048,
    max_num_seqs=16,
)
for number in range(NUM_PARTIAL + 1):
    engine.add([number] * 1024)
_, outputs, _ = engine.scheduler.schedule()
sizes = [scheduled.token_chunk_size for scheduled in outputs.scheduled_seq_groups]
num_partial = sum(size < 1024 for size in sizes)
print(f"a step computes {sizes} tokens of prompts of 1024: {num_partial} in part, and at most {NUM_PARTIAL} may be")
fault_if(num_partial > NUM_PARTIAL, "one prompt too many is computed in part")
