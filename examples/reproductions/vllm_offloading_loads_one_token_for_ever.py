"""vLLM 0.26.0 to 0.33.0: with blocks of one token, the OffloadingConnector loads a prompt of one token for ever.

The connector offers all tokens of a prompt, also the last one, which the scheduler must compute again. When the load of
a prompt of one token is over, the scheduler takes the number of computed tokens back from 1 to 0. A request with none
counts as one that was never looked up: the next step looks it up, and loads it again. The request never runs. Run it
with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_offloading import Offloading, over
from on_vllm_scheduler import end_step, new_request, new_scheduler, transferred

BLOCK_SIZE, NUM_STEPS = 1, 20

connector = Offloading(BLOCK_SIZE)
scheduler = new_scheduler(8, 4, BLOCK_SIZE, connector)


def num_steps_of(name: str) -> int | None:
    """Serve a request of one token, every copy over at once; after how many steps it was done, or None if never."""
    request = new_request(name, [7], max_tokens=1, hash_block_size=BLOCK_SIZE)
    scheduler.add_request(request)
    for number in range(1, NUM_STEPS + 1):
        step, jobs = scheduler.schedule(), connector.jobs
        loaded = [job.req_id for job in jobs.load_jobs.values()]
        end_step(scheduler, step, arrived=loaded, kv_connector_worker_meta=over([*jobs.load_jobs, *jobs.store_jobs]))
        print(f"{name}, step {number}: computes {step.num_scheduled_tokens}, loads {loaded}")
        if request.is_finished():
            scheduler.schedule()  # stores what the request leaves
            connector.update_connector_output(transferred(kv_connector_worker_meta=over(connector.jobs.store_jobs)))
            return number
    return None


num_steps_of("first")
is_endless = num_steps_of("second") is None
fault_if(is_endless, f"after {NUM_STEPS} steps the second request is not done: every step loads it again")
