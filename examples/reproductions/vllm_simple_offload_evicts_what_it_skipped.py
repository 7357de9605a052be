"""vLLM 0.29.0 to 0.33.0: the SimpleCPUOffloadConnector evicts a block of the prompt that it is about to store.

A prompt of three blocks is stored to a host of three blocks; the first block is there already, and is the oldest. The
connector skips it as cached (`_classify_store_candidate`) and does not hold it. For the other two it takes two blocks
of the host, and one of these is the block that was skipped. So the host keeps the end of the prompt without its
beginning: the next look-up of the prompt finds nothing. The connector has counted the first block as stored, and does
not store it again. `CPUOffloadingManager` had this fault in `prepare_store` until pull request 35846. Run it with the
vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import StandIn, fault_if
from on_vllm_simple_offload import BLOCK_SIZE, Offload

offload = Offload(num_blocks=32, num_host_blocks=3)


def request_of(name: str, *hashes: bytes) -> Any:
    """A request whose blocks have these hashes, and one token more; all of it is computed."""
    num_computed = len(hashes) * BLOCK_SIZE
    return StandIn(
        request_id=name,
        block_hashes=list(hashes),
        num_tokens=num_computed + 1,
        num_computed_tokens=num_computed,
        num_output_placeholders=0,
        skip_reading_prefix_cache=False,
    )


def store(name: str, *hashes: bytes) -> int:
    """Compute the blocks of a request, do the step that stores them, and end the copy; how many blocks it stores."""
    ids = [block.block_id for block in offload.computed(*hashes)]
    blocks = StandIn(get_block_ids=lambda: (ids,))
    offload.connector.update_state_after_alloc(request_of(name, *hashes), blocks, 0)
    jobs = offload.step(
        scheduled_new_reqs=[StandIn(req_id=name, block_ids=(ids,))],
        scheduled_cached_reqs=StandIn(req_ids=[], new_block_ids=[], resumed_req_ids=set()),
        num_scheduled_tokens={name: 1},
    )
    return len(jobs.store_gpu_blocks)


prompt = (b"first", b"second", b"third")
store("one block", prompt[0])
store("others", b"x", b"y")
stored = store("whole prompt", *prompt)
print(f"the host has 3 blocks; of the prompt of 3 blocks, the first of which is there, {stored} are stored")
found = offload.connector.get_num_new_matched_tokens(request_of("looks up", *prompt), 0)[0]
print(f"a look-up of this prompt finds {found} tokens")
fault_if(not found, "the store of the other blocks has evicted the first one, which it skipped as cached")
