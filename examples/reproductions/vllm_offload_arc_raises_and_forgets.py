"""vLLM 0.16.0: the policy "arc" of the offloading manager raises on a touch, and forgets blocks in a refused store.

A touch of a block that is still being written raises `KeyError`: the block is taken out of list T1, and then moved to
the end of the same list. Repaired in 0.17.0. A store that does not fit is refused, but has evicted what it could before
that. Repaired in 0.19.0.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if a fault is there.
"""

import importlib
import sys
from typing import Any

FIRST, SECOND, THIRD = (bytes([number] * 8) + bytes(4) for number in range(3))


def manager_of(num_blocks: int) -> Any:
    """An offloading manager with the policy "arc"."""
    try:
        kind = importlib.import_module("vllm.v1.kv_offload.arc_manager").ARCOffloadingManager
    except ModuleNotFoundError:  # from 0.19 on, one manager has all policies
        kind = importlib.import_module("vllm.v1.kv_offload.cpu.manager").CPUOffloadingManager
        return kind(block_size=16, num_blocks=num_blocks, cache_policy="arc")
    return kind(importlib.import_module("vllm.v1.kv_offload.backends.cpu").CPUBackend(16, num_blocks))


faults = []
manager = manager_of(1)
manager.prepare_store([FIRST])
try:
    manager.touch([FIRST])
except KeyError:
    faults.append("a touch of a block that is being written raises KeyError")

manager = manager_of(1)
manager.prepare_store([FIRST])
manager.complete_store([FIRST])
refused = manager.prepare_store([SECOND, THIRD]) is None
print(f"room for one block; a store of two others is {'refused' if refused else 'begun'}")
if refused and not manager.lookup([FIRST]):
    faults.append("a store that was refused has evicted a block")
if faults:
    sys.exit("; ".join(faults))
