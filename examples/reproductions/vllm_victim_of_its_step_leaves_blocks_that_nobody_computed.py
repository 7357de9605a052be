"""vLLM V1: a prompt hits a block of its own that was never computed.

With priorities, a step gives a request of low priority the blocks of its next chunk, and puts the full ones into the
prefix cache under their hashes. Then a request of higher priority needs a block, and preempts the first one, which
leaves the step. Its blocks are free and keep their hashes, though nothing computes the chunk (`Scheduler.schedule`,
`Scheduler._preempt_request`). When the request comes back, it hits them, and attends to what happens to be in them.
Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_vllm_scheduler import end_step, new_request, new_scheduler

sizes: dict[str, Any] = {"max_num_batched_tokens": 3, "long_prefill_token_threshold": 2, "max_num_seqs": 3}
PROMPT = [1, 2, 3, 4, 5, 6, 7]


def serve_both(num_blocks: int) -> None:
    """Serve both requests from a pool of this size, and compare what is read with what was computed."""
    scheduler = new_scheduler(num_blocks, num_blocks - 1, block_size=1, is_caching=True, policy="priority", **sizes)
    unimportant = new_request("unimportant", PROMPT, 1, hash_block_size=1, priority=9)
    important = new_request("important", [9], 2, hash_block_size=1, priority=0)
    computed = set[int]()  # positions of the prompt that a step has computed
    for number in range(6):
        if number < 2:
            scheduler.add_request((unimportant, important)[number])
        step = scheduler.schedule()
        stop = unimportant.num_computed_tokens
        start = stop - step.num_scheduled_tokens.get("unimportant", 0)
        print(f"a step computes {step.num_scheduled_tokens}; of the prompt, {sorted(computed)} are computed")
        missing = {*range(start)} - computed
        fault_if(missing, f"the prompt is taken for computed up to {start}, and {missing} never were")
        computed |= {*range(start, stop)}
        end_step(scheduler, step, {"unimportant": [0] if stop == len(PROMPT) else []})


for size in 8, 9:  # the first chunk has two tokens or, in later releases, three
    serve_both(size)
