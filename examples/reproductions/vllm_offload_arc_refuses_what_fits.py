"""vLLM, 0.11.1 to 0.29.0: the policy "arc" of the offloading manager refuses a store although it could evict.

The policy keeps two lists: T1 has the keys that were used once, T2 those that were used again. It evicts from T1 if T1
is at least as large as its target, and from T2 otherwise. Here three blocks are in T1, the target is three, and T2 is
empty. A store of two keys evicts one block from T1, which is then smaller than its target, and finds nothing in T2. The
store is refused, although nobody reads the two blocks that are left in T1. Not seen from 0.30.0 on. Run it with the
vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_offload import Store

NUM_BLOCKS = 3

store = Store(NUM_BLOCKS, policy="arc")
assert store.store(2, 3, 4)
assert store.store(0, 1)  # evicts two of them
assert store.store(5)  # evicts the third
store.touch(2, 3, 4)  # they were evicted not long ago: the policy raises the target of T1
accepted = store.store(6, 4)
print(f"{NUM_BLOCKS} blocks, which nobody reads; a store of two others is {'accepted' if accepted else 'refused'}")
fault_if(not accepted, "the store was refused, and every block could have been evicted for it")
