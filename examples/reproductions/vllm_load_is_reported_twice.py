"""vLLM V1, 0.16.0 to 0.33.0: two connectors of a MultiConnector report one load, and the second report is fatal.

`MultiConnector` hands on the loads that its connectors report as over, without counting how many of them have the
request. The scheduler asserts that a request whose load is over waits for it
(`Scheduler._update_from_kv_xfer_finished`). The second report comes when the request runs already: AssertionError
(issues 51786, 53049 and 42831, pull request 53746). Here the report is given to the scheduler twice, as a
MultiConnector does. Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if_raised
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler

connector = Connector(lambda request, num_computed: (0 if request.num_computed_tokens else 4, True))
scheduler = new_scheduler(12, connector=connector)
scheduler.add_request(new_request("first", [1] * 6))
end_step(scheduler, scheduler.schedule(), arrived=["first"])  # the first connector
end_step(scheduler, scheduler.schedule())
step = scheduler.schedule()
print(f"the request runs: a step computes {step.num_scheduled_tokens}")
with fault_if_raised(AssertionError, "the same load is reported once more"):
    end_step(scheduler, step, arrived=["first"])  # the second one
print("the second report changes nothing")
