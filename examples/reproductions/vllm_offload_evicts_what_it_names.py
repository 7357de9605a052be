"""vLLM 0.16.0: a store to host memory evicts a block that the same store names.

`prepare_store` of the offloading manager leaves out the blocks that are in host memory already, and makes room for the
others by evicting whatever nobody reads. That may be a block which the same call leaves out, so that it is lost
although the caller takes it for kept. Both policies do so. Repaired in 0.18.0.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import importlib
import sys
from typing import Any

FIRST, SECOND = bytes(8) + bytes(4), bytes([1] * 8) + bytes(4)


def manager_of(num_blocks: int) -> Any:
    """An offloading manager with the policy "lru"."""
    try:
        kind = importlib.import_module("vllm.v1.kv_offload.lru_manager").LRUOffloadingManager
    except ModuleNotFoundError:  # from 0.19 on, one manager has all policies
        kind = importlib.import_module("vllm.v1.kv_offload.cpu.manager").CPUOffloadingManager
        return kind(block_size=16, num_blocks=num_blocks, cache_policy="lru")
    return kind(importlib.import_module("vllm.v1.kv_offload.backends.cpu").CPUBackend(16, num_blocks))


manager = manager_of(1)
manager.prepare_store([FIRST])
manager.complete_store([FIRST])
print(f"the first block is in host memory: {bool(manager.lookup([FIRST]))}")

stored = manager.prepare_store([FIRST, SECOND])
print(f"room for one block; a store of the first and the second is {'refused' if stored is None else 'begun'}")
if not manager.lookup([FIRST]):
    sys.exit("the first block was evicted by a store that names it")
