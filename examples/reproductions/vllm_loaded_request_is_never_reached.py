"""vLLM V1, 0.11.0 to 0.17.1: a request whose KV has arrived waits for ever behind one that needs its blocks.

A request waits while a KV connector loads its KV; it has its blocks already. Another one runs, needs a further block
when none is left, and is preempted, which puts it at the front of the queue. It does not fit beside the blocks of the
first request, so the loop over the queue ends there, in every step again. The first request could run at once, but it
is never reached. Not seen from 0.18.1 on. Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler

NUM_BLOCKS, NUM_TOKENS = 7, 10  # one of the blocks is the null block
NUM_STEPS = 40


def finds(request: Any, num_computed_tokens: int) -> tuple[int, bool]:
    """The connector loads the whole prompt of the request "loaded", and nothing else."""
    return (request.num_tokens - num_computed_tokens, True) if request.request_id == "loaded" else (0, False)


scheduler = new_scheduler(NUM_BLOCKS, NUM_TOKENS, connector=Connector(finds), max_num_seqs=1)
scheduler.add_request(new_request("loaded", [0] * 4, max_tokens=1))
scheduler.add_request(new_request("long", [0], max_tokens=NUM_TOKENS - 1))
for number in range(NUM_STEPS):
    step = scheduler.schedule()
    if number < 12:
        print(f"step {number} computes {step.num_scheduled_tokens}")
    end_step(scheduler, step, arrived=["loaded"] if number == 1 else [])
left = sorted(scheduler.requests)
print(f"after {NUM_STEPS} steps, these requests are not over: {left}")
fault_if(left, "nothing is scheduled any more, and the KV of the first request is there")
