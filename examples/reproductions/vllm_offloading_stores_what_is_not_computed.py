"""vLLM 0.26.0 to 0.29.0: the OffloadingConnector stores a block with a token that was never computed, and loads it.

The last token that a request generates is sampled and not computed, because the request is over. If it is the last one
of a block, a slot of this block has no KV. `_build_store_jobs` takes the number of tokens of an ended request for the
number of computed ones, so it stores the block too. A prompt that begins with these tokens loads it, and reads a slot
that nobody wrote. From 0.30.0 on the last token is left out. Run it with the vLLM that is to be tried: exit code 1 if
the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_vllm_offloading import Offloading, over
from on_vllm_scheduler import end_step, new_request, new_scheduler

BLOCK_SIZE, NUM_BLOCKS, NUM_STEPS = 2, 8, 20

connector = Offloading(BLOCK_SIZE, NUM_BLOCKS)
scheduler = new_scheduler(NUM_BLOCKS, 8, BLOCK_SIZE, connector)
device: dict[int, list[int | None]] = {block: [None] * BLOCK_SIZE for block in range(NUM_BLOCKS)}
host: dict[int, list[int | None]] = {}  # the tokens whose KV each block holds, slot by slot
unreported: list[int] = []  # the stores of the step before: each is reported as over with the next step


def copy(job: Any, source: dict[int, Any], target: dict[int, Any]) -> list[Any]:
    """Do a load or a store. Returns what it copies."""
    for old, new in zip(job.src_spec.block_ids.tolist(), job.dst_spec.block_ids.tolist(), strict=True):
        target[new] = list(source[old])
    return [target[block] for block in job.dst_spec.block_ids.tolist()]


def compute(name: str, num_tokens: int) -> bool:
    """Compute tokens of a request. Returns whether everything that is read was written."""
    request, is_right = scheduler.requests[name], True
    (table,) = scheduler.kv_cache_manager.get_block_ids(name)
    stop = request.num_computed_tokens  # those of this step are counted already
    for position, token in enumerate(request.all_token_ids[:stop]):
        slots, place = device[table[position // BLOCK_SIZE]], position % BLOCK_SIZE
        if position >= stop - num_tokens:
            slots[place] = token
        elif slots[place] != token:
            print(f"  request {name} reads token {token} at position {position}, and finds {slots[place]}")
            is_right = False
    print(f"  request {name} computes {num_tokens} tokens, in blocks {table}")
    return is_right


def do_step(token: int) -> bool:
    """Do a step and all copies that it asks for. Returns whether everything that is read was written."""
    step, jobs = scheduler.schedule(), connector.jobs
    for job in jobs.load_jobs.values():
        print(f"  request {job.req_id} loads {copy(job, host, device)}")
    is_right = True
    for name, num_tokens in step.num_scheduled_tokens.items():
        is_right &= compute(name, num_tokens)
    for job in jobs.store_jobs.values():
        print(f"  request {job.req_id} stores {copy(job, device, host)}")
    sampled = {
        name: [token] if scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens else []
        for name in step.num_scheduled_tokens
    }
    loaded, done = [job.req_id for job in jobs.load_jobs.values()], over([*jobs.load_jobs, *unreported])
    unreported[:] = jobs.store_jobs
    end_step(scheduler, step, sampled, loaded, kv_connector_worker_meta=done)
    return is_right


def serve(name: str, prompt: list[int], sampled: int) -> bool:
    """Serve a request that generates one token. Returns whether all that it has read was written."""
    request = new_request(name, prompt, max_tokens=1, hash_block_size=BLOCK_SIZE)
    scheduler.add_request(request)
    is_right = True
    for number in range(1, NUM_STEPS + 1):
        print(f"step {number} of request {name}, with the prompt {prompt}:")
        is_right &= do_step(sampled)
        if request.is_finished():
            break
    print("a step without a request:")
    return do_step(sampled) and is_right  # stores what the request leaves


serve("first", prompt=[1, 2, 3], sampled=4)
is_right = serve("second", prompt=[1, 2, 3, 4, 5], sampled=6)
fault_if(not is_right, "a block is loaded that was stored before its last token was computed")
