"""vLLM V1, 0.29.0 and 0.30.0: a request whose KV has arrived waits for ever behind one that was looked up again.

A KV connector cannot say yet how much it has of a request, which is to be looked up again (as with the
OffloadingConnector while the KV is still being stored). Meanwhile the KV of another request is loaded. Both wait in the
queue of requests that were skipped, in this order. The first one could be loaded now, but what is free is reserved for
the second one, so the loop over the queue ends there, in every step again. The second one could run at once, but it is
never reached. From 0.31.0 on, requests that hold blocks have a queue of their own, which comes first. Run it with the
vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, loading_in, new_request, new_scheduler

BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS = 2, 3, 3  # one of the blocks is the null block
NUM_STEPS = 40
first_answer = iter([(None, False)])


def finds(request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
    """The connector loads the first block of each request; of the request "again" it knows that later."""
    return next(first_answer if request.request_id == "again" else iter([]), (BLOCK_SIZE, True))


scheduler = new_scheduler(NUM_BLOCKS, NUM_TOKENS, connector=Connector(finds), max_num_seqs=1)
scheduler.add_request(new_request("again", [0] * BLOCK_SIZE, max_tokens=1))
scheduler.add_request(new_request("loaded", [0] * NUM_TOKENS, max_tokens=1))
for number in range(NUM_STEPS):
    step, waiting = scheduler.schedule(), loading_in(scheduler)
    if number < 6:
        print(f"step {number} computes {step.num_scheduled_tokens}, loads {waiting}")
    end_step(scheduler, step, arrived=[name for name in waiting if name not in scheduler.finished_recving_kv_req_ids])
left = sorted(scheduler.requests)
print(f"after {NUM_STEPS} steps, these requests are not over: {left}")
fault_if(left, "nothing is scheduled any more, and the KV of the request that was loaded is there")
