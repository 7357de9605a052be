"""vLLM 0.16.0: a store to host memory evicts a block that the same store names.

`prepare_store` of the offloading manager leaves out the blocks that are in host memory already, and makes room for the
others by evicting whatever nobody reads. That may be a block which the same call leaves out, so that it is lost
although the caller takes it for kept. Both policies do so. Repaired in 0.18.0. Run it with the vLLM that is to be
tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_offload import Store

store = Store(num_blocks=1, policy="lru")
store.store(0)
print(f"the first block is in host memory: {store.has(0)}")
accepted = store.begin(0, 1)
print(f"room for one block; a store of the first and the second is {'begun' if accepted else 'refused'}")
fault_if(not store.has(0), "the first block was evicted by a store that names it")
