"""SGLang 0.5.18 to 0.5.21: the first chunk of a prompt is computed again in each step (issue 36855).

A request may say that its KV is not to be published (`skip_radix_cache_insert`). If its prompt has several chunks, the
scheduler does not remember the chunk that was computed. Each step gets new slots for the first chunk, and the slots of
the step before are lost, until the pool is empty.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from typing import Any

from on_any_engine import fault_if
from on_sglang_scheduler import new_request, new_scheduler, next_batch

NUM_SLOTS, CHUNK, NUM_CHUNKS = 32, 4, 3
scheduler = new_scheduler(NUM_SLOTS, CHUNK)
request = new_request("request", range(NUM_CHUNKS * CHUNK))
request.skip_radix_cache_insert = True
scheduler.waiting_queue.append(request)
batch: Any = None
begins: list[int] = []  # where the tokens of each step begin
for _ in range(NUM_CHUNKS):
    batch = next_batch(scheduler, batch)
    begins.append(request.prefix_len if hasattr(request, "prefix_len") else len(request.prefix_indices))
print(f"the steps begin at tokens {begins}; free slots: {scheduler.token_to_kv_pool_allocator.available_size()}")
fault_if(begins != [CHUNK * step for step in range(NUM_CHUNKS)], "a chunk is computed again")
