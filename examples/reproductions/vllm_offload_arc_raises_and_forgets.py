"""vLLM 0.16.0: the policy "arc" of the offloading manager raises on a touch, and forgets blocks in a refused store.

A touch of a block that is still being written raises `KeyError`: the block is taken out of list T1, and then moved to
the end of the same list. Repaired in 0.17.0. A store that does not fit is refused, but has evicted what it could before
that. Repaired in 0.19.0. Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_offload import Store

faults = []
store = Store(num_blocks=1, policy="arc")
store.begin(0)
try:
    store.touch(0)
except KeyError:
    faults.append("a touch of a block that is being written raises KeyError")

store = Store(num_blocks=1, policy="arc")
store.store(0)
refused = not store.begin(1, 2)
print(f"room for one block; a store of two others is {'refused' if refused else 'begun'}")
if refused and not store.has(0):
    faults.append("a store that was refused has evicted a block")
fault_if(faults, "; ".join(faults))
