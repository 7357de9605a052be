"""vLLM V1, 0.27.1 to 0.33.0: with asynchronous steps, a prompt preempts itself for ever for a block of states.

A model has layers with full attention in blocks of 4 tokens, and layers with states (Mamba, mode "align") in blocks of
2. `MambaSpec.max_memory_usage_bytes` says that a request needs 2 blocks of states, so the engine starts with a pool of
4 blocks for a model of 8 tokens. A prompt of 7 tokens is computed in chunks of 4, 2 and 1. When the third chunk is
scheduled, the second is still under way: the state that it reads, its own and that of the third chunk are 3 blocks, and
there are 2 of full attention. The request preempts itself, hits 4 tokens, and all begins again. With steps one after
another it fits. Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_vllm import spec
from on_vllm_scheduler import end_step, new_request, new_scheduler

specs = spec(block_size=4), spec("MambaSpec", 2)
scheduler = new_scheduler(
    5, 8, specs=specs, is_async=True, is_caching=True, common_block_size=4, max_num_batched_tokens=4
)
request = new_request("first", list(range(7)), max_tokens=1, hash_block_size=2)
scheduler.add_request(request)
under_way: list[tuple[Any, list[int]]] = []  # steps, and what each samples
num_steps = 0
while scheduler.requests and num_steps < 100:
    step = scheduler.schedule()
    under_way.append((step, [0] if request.num_computed_tokens == request.num_tokens else []))
    num_steps += 1
    if num_steps < 10:
        print(f"step {num_steps} computes {step.num_scheduled_tokens}")
    if len(under_way) > 1:
        step, sampled = under_way.pop(0)
        end_step(scheduler, step, {"first": sampled})
fault_if(scheduler.requests, f"after {num_steps} steps the request has no token yet")
