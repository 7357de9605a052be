"""vLLM V1: with priorities, an image of a request that is preempted in its step counts as cached, and was not computed.

A step schedules a request whose chunk has an image: `EncoderCacheManager` takes room for the output. Then a request
that matters more needs a block, and the first one is preempted in the same step. `Scheduler.schedule` takes its images
out of the step, and the cache keeps the output, which nobody computes. When the request comes again, the output is
found, and the worker has none: "Encoder cache miss" ends the engine. Run it with the vLLM that is to be tried: exit
code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import StandIn, fault_if
from on_vllm_scheduler import end_step, new_request, new_scheduler
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

FIRST, LENGTH = 12, 2  # the place of the image in the prompt
place = StandIn(offset=FIRST, length=LENGTH, get_num_embeds=lambda: LENGTH, is_embed=None)
place.get_embeds_indices_in_range = lambda start, end: (start, end)
image = StandIn(identifier="a cat", mm_position=place, data=None, modality="image", mm_hash="a cat")

chunks: dict[str, Any] = {
    "max_num_batched_tokens": 8,
    "long_prefill_token_threshold": 4,
    "disable_chunked_mm_input": False,
}
scheduler = new_scheduler(10, policy="priority", **chunks)
scheduler.encoder_cache_manager = EncoderCacheManager(8)
scheduler.max_num_encoder_input_tokens = 8
scheduler.add_request(new_request("unimportant", [1] * 14, max_tokens=2, priority=9, mm_features=[image]))
worker = set[str]()
lacking: list[int] = []
is_alone = True
for number in range(1, 9):
    if is_alone and scheduler.requests["unimportant"].num_computed_tokens == FIRST - 4:
        is_alone = False
        scheduler.add_request(new_request("important", [2] * 4, max_tokens=2, priority=1))
    step = scheduler.schedule()
    worker.difference_update(step.free_encoder_mm_hashes)
    worker.update("a cat" for inputs in step.scheduled_encoder_inputs.values() if inputs)
    computed = step.num_scheduled_tokens
    print(f"step {number} computes {computed}, images of {[*step.scheduled_encoder_inputs]}; the worker has {worker}")
    if "unimportant" in computed and scheduler.requests["unimportant"].num_computed_tokens > FIRST and not worker:
        lacking.append(number)
        break
    ready = [name for name, one in scheduler.requests.items() if one.num_computed_tokens >= one.num_tokens]
    end_step(scheduler, step, {name: [0] if name in ready else [] for name in computed})
    if "unimportant" not in scheduler.requests:
        break
fault_if(lacking, f"step {lacking} computes tokens of an image that the worker never got")
