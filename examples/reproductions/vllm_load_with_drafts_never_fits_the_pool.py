"""vLLM V1, 0.31.0 to 0.33.0: with drafts, a prompt that is loaded and fills the pool waits for ever, and nothing runs.

The pool has the blocks of one request of `max_model_len` 8, in blocks of 2, as vLLM demands it and as
`--max-model-len auto` sets it. A connector has the whole prompt of 7 tokens. A load is admitted if the pool has its
blocks and those of a step with drafts beside it: 5 blocks of 4. So the only request waits, although everything is free.
Without drafts, and without a connector, it is served. Run it with the vLLM that is to be tried: exit code 1 if the
fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, loading_in, new_request, new_scheduler

NUM_STEPS = 30


def left_over(num_drafts: int, connector: object) -> list[str]:
    """The requests that are not over after so many steps."""
    scheduler = new_scheduler(5, connector=connector, num_drafts=num_drafts)
    scheduler.add_request(new_request("only", [0] * 7, max_tokens=1))
    reported: set[str] = set()
    for _ in range(NUM_STEPS):
        step, arrived = scheduler.schedule(), set(loading_in(scheduler)) - reported
        reported |= arrived
        end_step(scheduler, step, arrived=arrived)
    return sorted(scheduler.requests)


def elsewhere() -> Connector:
    """A connector that has the KV of every prompt."""
    return Connector(lambda request, num_computed: (0 if request.num_computed_tokens else request.num_tokens, True))


print(f"not over, with a load and no drafts: {left_over(0, elsewhere())}")
print(f"not over, with drafts and no load: {left_over(1, None)}")
left = left_over(1, elsewhere())
print(f"not over, with drafts and a load: {left}")
fault_if(left, "the only request waits for ever, and every block is free")
