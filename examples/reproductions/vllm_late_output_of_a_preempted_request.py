"""vLLM V1, 0.11.0 to 0.26.0: the output of a request that was preempted meanwhile counts twice, and stops the engine.

With asynchronous scheduling a request has a placeholder for each token that is under way, and with a draft model for
each draft. Here two steps are under way when the next one is scheduled, as with two pipeline stages. A request is
preempted while a step computes it; it is taken back, and has new placeholders. Its late output is counted off these,
and at last `AsyncScheduler._update_request_with_output` finds fewer than none: an assertion fails. From 0.27.0 on the
late output is left out (issue 47900, pull request 48245). Run it with the vLLM that is to be tried: exit code 1 if the
fault is there.
"""

from typing import Any

from on_any_engine import fault_if_raised
from on_vllm_scheduler import end_step, new_request, new_scheduler
from vllm.v1.request import RequestStatus

NUM_STEPS = 20

scheduler = new_scheduler(6, is_async=True, num_drafts=2)
for name, max_tokens in (("aborted", 3), ("first", 8), ("second", 5)):
    scheduler.add_request(new_request(name, [0] * 2, max_tokens))
under_way: list[Any] = []
for number in range(NUM_STEPS):
    if number == 2:
        scheduler.finish_requests("aborted", RequestStatus.FINISHED_ABORTED)
    under_way.append(scheduler.schedule())
    status = {name: (one.status.name, one.num_output_placeholders) for name, one in scheduler.requests.items()}
    print(f"step {number} computes {under_way[-1].num_scheduled_tokens}; status and placeholders: {status}")
    if len(under_way) > 2:
        sampled = {"first": [0] * 3} if number == 6 else None  # two drafts are accepted; in every other step, none
        with fault_if_raised(AssertionError, f"the output of step {number - 2} comes, and its placeholders are gone"):
            end_step(scheduler, under_way.pop(0), sampled)
print(f"after {NUM_STEPS} steps, these requests are not over: {sorted(scheduler.requests)}")
