"""vLLM V1, 0.25.0 to 0.30.0: two requests whose KV is loaded fill the pool, and nothing runs with a draft model.

A connector loads the whole prompts of two requests, 8 and 6 tokens in blocks of 2, which take all 7 blocks. When they
are there, each request needs one block more for the token that it generates and the drafts behind it. None is free, and
none becomes free, since nothing runs. What a load reserves does not count the drafts; from 0.31.0 on it does (pull
request 57104). Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import Connector, end_step, loading_in, new_request, new_scheduler

NUM_STEPS = 30

connector = Connector(lambda request, num_computed: (0 if request.num_computed_tokens else request.num_tokens, True))
scheduler = new_scheduler(8, connector=connector, num_drafts=1)
for name, num_tokens in (("first", 8), ("second", 6)):
    scheduler.add_request(new_request(name, [0] * num_tokens, max_tokens=2))
reported: set[str] = set()
for number in range(NUM_STEPS):
    step, arrived = scheduler.schedule(), set(loading_in(scheduler)) - reported
    if number < 5:
        print(f"step {number} computes {step.num_scheduled_tokens}, loads {sorted(arrived)}")
    reported |= arrived
    end_step(scheduler, step, arrived=arrived)
left = sorted(scheduler.requests)
print(f"after {NUM_STEPS} steps, these requests are not over: {left}")
fault_if(left, "nothing is scheduled any more, and the KV of the requests is there")
