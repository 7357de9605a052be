"""SGLang 0.5.14 to 0.5.21: after a prompt that does not fit, nothing is scheduled any more (issue 39271).

A prompt that needs the whole pool is refused, and the running batch is marked as full, although nothing runs. The mark
is taken away when a request of the batch ends, and there is none. When the client has given up, prompts that fit wait
for ever.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from on_any_engine import fault_if
from on_sglang_scheduler import new_request, new_scheduler, next_batch

NUM_SLOTS = 16
scheduler = new_scheduler(NUM_SLOTS)
scheduler.waiting_queue.append(new_request("long", range(NUM_SLOTS)))
assert next_batch(scheduler) is None  # it does not fit
scheduler.waiting_queue.clear()  # its client aborts it
scheduler.waiting_queue.append(new_request("short", [7, 8]))
is_scheduled = any(next_batch(scheduler) is not None for _ in range(3))
print(
    f"the running batch has {len(scheduler.running_batch.reqs)} requests; full: {scheduler.running_batch.batch_is_full}"
)
fault_if(not is_scheduled, "a prompt of two tokens is not scheduled in an empty pool")
