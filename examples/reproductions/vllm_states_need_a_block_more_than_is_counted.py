"""vLLM V1, 0.23.0 to 0.33.0: with states beside attention and a KV connector, a request is admitted without a block.

A model has layers with full attention and layers with states (Mamba). A connector has 4 of the 6 tokens of a prompt and
loads them within the step. `MambaManager.get_num_blocks_to_allocate` counts one block for the states. Two are taken,
one for the tokens that are loaded and one for the new ones. Exactly the blocks that were counted are free, so
`BlockPool.get_new_blocks` raises ValueError, which stops the engine; the request should wait (pull request 46892). Run
it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if_raised
from on_vllm import spec
from on_vllm_scheduler import Connector, end_step, new_request, new_scheduler


def finds(request: Any, num_computed_tokens: int) -> tuple[int, bool]:
    """The connector has 4 tokens of the second request."""
    return (4, False) if request.request_id == "second" else (0, False)


specs = (spec(), spec("MambaSpec"))
scheduler = new_scheduler(9, 8, connector=Connector(finds), specs=specs, is_caching=True)
scheduler.add_request(new_request("first", [2] * 2, max_tokens=2, hash_block_size=2))
end_step(scheduler, scheduler.schedule())
print(f"free blocks: {scheduler.kv_cache_manager.block_pool.get_num_free_blocks()}")
scheduler.add_request(new_request("second", [1] * 6, max_tokens=2, hash_block_size=2))
with fault_if_raised(ValueError, "the second request is admitted, and its blocks are not there"):
    print(f"the next step computes {scheduler.schedule().num_scheduled_tokens}")
