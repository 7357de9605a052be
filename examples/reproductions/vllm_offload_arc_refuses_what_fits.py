"""vLLM, 0.11.1 to 0.29.0: the policy "arc" of the offloading manager refuses a store although it could evict.

The policy keeps two lists: T1 has the keys that were used once, T2 those that were used again. It evicts from T1 if T1
is at least as large as its target, and from T2 otherwise. Here three blocks are in T1, the target is three, and T2 is
empty. A store of two keys evicts one block from T1, which is then smaller than its target, and finds nothing in T2.
The store is refused, although nobody reads the two blocks that are left in T1.
Not seen from 0.30.0 on.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import importlib
import inspect
import sys
from typing import Any

NUM_BLOCKS = 3
KEYS = [bytes([number] * 8) + bytes(4) for number in range(7)]


def with_options(kind: Any, **options: Any) -> Any:
    """Call a class with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


def new_manager() -> Any:
    """An offloading manager with the policy "arc"."""
    try:
        kind = importlib.import_module("vllm.v1.kv_offload.arc_manager").ARCOffloadingManager
    except ModuleNotFoundError:  # from 0.19 on, one manager has all policies
        kind = importlib.import_module("vllm.v1.kv_offload.cpu.manager").CPUOffloadingManager
        return with_options(
            kind, block_size=16, num_blocks=NUM_BLOCKS, num_chunks=NUM_BLOCKS, cache_policy="arc", enable_events=False
        )
    return kind(importlib.import_module("vllm.v1.kv_offload.backends.cpu").CPUBackend(16, NUM_BLOCKS))


manager = new_manager()
context = []
if "req_context" in inspect.signature(manager.prepare_store).parameters:
    try:
        base = importlib.import_module("vllm.v1.kv_offload.base")
    except ModuleNotFoundError:
        base = importlib.import_module("vllm.v1.kv_offload.abstract")
    context = [with_options(base.ReqContext, req_id="request")]
    if hasattr(manager, "on_new_request"):
        manager.on_new_request(*context)
    if hasattr(context[0], "set_offload_key_position"):
        for position, key in enumerate(KEYS, 1):
            context[0].set_offload_key_position(key, 16 * position)


def store(*numbers: int) -> bool:
    """Store these keys; returns whether the store was accepted."""
    keys = [KEYS[number] for number in numbers]
    if manager.prepare_store(keys, *context) is None:
        return False
    manager.complete_store(keys, *context)
    return True


def touch(*numbers: int) -> None:
    """Tell the policy that a request uses these keys, whether they are there or not."""
    manager.touch([KEYS[number] for number in numbers], *context)


assert store(2, 3, 4)
assert store(0, 1)  # evicts two of them
assert store(5)  # evicts the third
touch(2, 3, 4)  # they were evicted not long ago: the policy raises the target of T1
accepted = store(6, 4)
print(f"{NUM_BLOCKS} blocks, which nobody reads; a store of two others is {'accepted' if accepted else 'refused'}")
if not accepted:
    sys.exit("the store was refused, and every block could have been evicted for it")
