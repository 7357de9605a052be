"""LMCache 0.5.3: a request releases locks of its window that it does not hold, and others hold (PR 4523).

For a model with sliding windows, a look-up locks only the last chunks of its hit for the window. What vLLM has itself
is released without a load, and then `free_lookup_locks` takes every chunk in every group, so also chunks of the window
that this request never locked. If another request holds one of them, it loses its lock, and the chunk can be evicted
while it is read. From 0.5.4 on only what the look-up has locked is released. Run it with the LMCache that is to be
tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import StandIn, fault_if
from on_lmcache import module, new_manager, write

FULL, WINDOW = 0, 1  # groups of layers
NUM_CHUNKS = 4
api = module("v1.distributed.api")


def key(*chunks: int) -> Any:
    """How the connector names chunks of the prompt that both requests have. A chunk has one token."""
    return StandIn(
        token_ids=list(range(NUM_CHUNKS)),
        start=chunks[0],
        end=chunks[-1] + 1,
        model_name="model",
        world_size=1,
        worker_id=0,
        cache_salt="",
        request_id="long",
    )


def objects(group: int, *chunks: int) -> Any:
    """The keys of these chunks for a group."""
    return api.ipc_key_to_object_keys(key(*chunks), [bytes([chunk]) for chunk in chunks], [group])[0]


manager = new_manager(2 * NUM_CHUNKS)
write(manager, objects(FULL, 0, 1, 2, 3) + objects(WINDOW, 0, 1, 2, 3))
manager.reserve_read(objects(FULL, 0, 1) + objects(WINDOW, 1))  # a request that hits two chunks
manager.reserve_read(objects(FULL, 0, 1, 2, 3) + objects(WINDOW, 3))  # a request that hits four
lookups = module("v1.multiprocess.modules.lookup").LookupModule
server = lookups.__new__(lookups)
server._ctx = StandIn(
    chunk_size=1,
    token_hasher=StandIn(compute_chunk_hashes=lambda tokens, start, end: [bytes([at]) for at in range(start, end)]),
    layout_desc_registry=StandIn(
        find_attn_desc=lambda model, world_size: StandIn(num_object_groups=2, num_chunks_in_sw=[-1, 1])
    ),
    session_manager=StandIn(get_or_create=lambda request: StandIn(prefetch_hit_chunks=NUM_CHUNKS)),
    storage_manager=StandIn(finish_read_prefetched=lambda keys, extra_count=0: manager.finish_read(keys)),
)
server.free_lookup_locks(key(0, 1), 1)  # vLLM has the first two chunks of the long request
is_held = manager.unsafe_read(objects(WINDOW, 1))[objects(WINDOW, 1)[0]][1] is not None
print("the short request still holds the last chunk of its window:", is_held)
fault_if(not is_held, "the long request has released the lock of the short one")
