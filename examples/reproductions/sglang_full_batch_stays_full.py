"""SGLang 0.5.14 to 0.5.21: after a prompt that does not fit, nothing is scheduled any more (issue 39271).

A prompt that needs the whole pool is refused, and the running batch is marked as full, although nothing runs. The mark
is taken away when a request of the batch ends, and there is none. When the client has given up, prompts that fit wait
for ever.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

import sys

from on_sglang_scheduler import new_request, new_scheduler, next_batch

NUM_SLOTS = 16
scheduler = new_scheduler(NUM_SLOTS)
scheduler.waiting_queue.append(new_request("long", range(NUM_SLOTS)))
if next_batch(scheduler) is not None:
    sys.exit("the long prompt fits; the script is wrong")
scheduler.waiting_queue.clear()  # its client aborts it
scheduler.waiting_queue.append(new_request("short", [7, 8]))
is_scheduled = any(next_batch(scheduler) is not None for _ in range(3))
print(
    f"the running batch has {len(scheduler.running_batch.reqs)} requests; full: {scheduler.running_batch.batch_is_full}"
)
if not is_scheduled:
    sys.exit("a prompt of two tokens is not scheduled in an empty pool")
