"""The public interface of vLLM's V0 line, by vLLM's names. The block manager runs none of it.

- *Block objects* (systems S4 to S11): `refcount`, `block_pool`, `naive`, `prefix_caching`, `trackers`,
  `device_allocator` and `block_table`. A block is an object with tokens and an id; a sequence is a chain of them. They
  exist for programs and unit tests that are written against vLLM's public interface. `BlockManager` keeps plain ids in
  a `Table` instead, and shares with the objects only the state below: `DeviceBlocks`, `CachedBlocks` and `move`.
- *First generation* (systems S1 to S3): `generation1` and its parts, a manager with the older interface on that state.

Both are judged as the block manager is: `kvproof-objects` drives the objects as vLLM's own manager does, and
`kvproof-generation1` is the older manager.

Source: vLLM 0.2 to 0.10, `vllm/core/block/`, `vllm/core/block_manager.py` and `vllm/core/block_manager_v1.py`.
"""
