"""vLLM's V1 block pool by itself, as a subject of pool level: releases 0.10.2 to 0.33.

Block ids of the judge are those of the pool's blocks. The adapter does what vLLM's managers of one type do: it asks how
many blocks are free before it takes some, looks cached blocks up one by one, and touches those that are found or
shared. What is given up goes to `free_blocks` in one call, with a block as often as references to it are given up: the
connectors that hold blocks while they copy them touch and free the blocks of several requests at once.
"""

import inspect
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.capabilities import PoolCan
from kvproof.check.protocol.manager import Assumption, Observation, Refused, Unsupported
from kvproof.check.protocol.pool import Cleared, PoolConfig, PoolEvent, Removed, Stored
from kvproof.check.subjects.loading import EngineError, partial_import
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.vllm.v1_fakes import FakeRequest
from kvproof.check.subjects.vllm.v1_loader import BlockRemoved, BlockStored, content_hash, import_release
from kvproof.check.subjects.vllm.v1_manager import eviction_policy
from kvproof.check.subjects.vllm.v1_observation import ManagerReader, call_with
from kvproof.spec.text.eviction_policy import SEQUENCE_LRU
from kvproof.spec.text.identity import Key

GROUP = 0  # of the KV cache groups, the only one
PLAIN = Key()
ASSUMPTIONS = (
    Assumption("asks-for-free-blocks", "The caller takes no more blocks than are counted as free."),
    Assumption(
        "holds-what-it-frees", "The caller frees as many references as it has, and touches only held or found blocks."
    ),
    Assumption("caches-once", "A block is cached once while it is held."),
)


class VllmV1Pool:
    """`vllm.v1.core.block_pool.BlockPool`."""

    capabilities = PoolCan(fork=True, caching=True, reset=True, lost_hits=0, eviction=SEQUENCE_LRU, events=True)
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        self.name = f"vllm-v1-pool {version}"
        utils = import_release(version).utils
        if not hasattr(utils, "get_request_block_hasher"):
            raise EngineError(f"the pool of vLLM {version} is driven from 0.10.2 on; `vllm-v1=={version}` is there")
        self._class = partial_import.module_of("vllm", "v1.core.block_pool").BlockPool
        self.capabilities = replace(self.capabilities, eviction=eviction_policy(utils))
        self._touches_groups = "tuple" in str(inspect.signature(self._class.touch).parameters["blocks"].annotation)
        utils.init_none_hash(content_hash)
        self._hasher = utils.get_request_block_hasher(1, content_hash)

    def open(self, config: PoolConfig) -> None:
        if config.num_gpu_blocks < 2:
            raise Unsupported("the null block would be all")
        wanted = {"num_gpu_blocks": config.num_gpu_blocks, "enable_caching": config.caching, "hash_block_size": 1}
        wanted["enable_kv_cache_events"] = True
        self._pool = call_with(self._class, wanted)
        self._reader = ManagerReader(StubObject(block_pool=self._pool, req_to_blocks={}))

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        num_free = self._pool.get_num_free_blocks()
        if num_blocks > num_free:
            return Refused(f"{num_free} blocks are free")
        return [block.block_id for block in self._pool.get_new_blocks(num_blocks)]

    def share(self, blocks: list[int]) -> None:
        touched = self._blocks(blocks)
        self._pool.touch((touched,) if self._touches_groups else touched)

    def free(self, blocks: list[int]) -> None:
        self._pool.free_blocks(self._blocks(blocks))

    def _blocks(self, ids: list[int]) -> list[Any]:
        return [self._pool.blocks[block] for block in ids]

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        wanted = {
            "request": FakeRequest(0, pages, PLAIN, (), self._hasher),
            "blocks": self._blocks(blocks),
            "num_cached_blocks": 0,
            "num_full_blocks": len(blocks),
            "block_size": 1,
            "kv_cache_group_id": GROUP,
        }
        call_with(self._pool.cache_full_blocks, wanted)

    def find(self, pages: list[int]) -> list[int]:
        found: list[int] = []
        for block_hash in FakeRequest(0, pages, PLAIN, (), self._hasher).block_hashes:
            blocks = self._pool.get_cached_block(block_hash, [GROUP])
            if not blocks:
                break
            found.append(blocks[0].block_id)
        return found

    def reset_cache(self) -> bool:
        return bool(self._pool.reset_prefix_cache())

    def events(self) -> list[PoolEvent]:
        found: list[PoolEvent] = []
        for event in self._pool.take_events():
            if isinstance(event, BlockStored):
                names, parent = [*map(str, event.block_hashes)], event.parent_block_hash
                found += map(Stored, names, [None if parent is None else str(parent), *names], event.token_ids)
            elif isinstance(event, BlockRemoved):
                found += [Removed(str(name)) for name in event.block_hashes]
            else:
                found.append(Cleared())
        return found

    def observe(self) -> Observation:
        return self._reader.observe()

    def observe_part(self, seqs: list[int]) -> Observation:
        return self._reader.observe_part(seqs)
