"""The tree of HiCache from 0.5.21 on, `UnifiedRadixCache`, for full attention and with its tree core in Python.

The tree is named by the ids of its nodes, its locks are receipts, the host pool is one of a group, and what an insert
has to write goes to the device when the scheduler has processed the batch (`flush_pending_backups`). A prefetch whose
storage has answered is taken over as soon as its last page was copied.
"""

from typing import Any

from kvproof.check.protocol.store import StoreConfig
from kvproof.check.subjects.sglang import loader
from kvproof.check.subjects.sglang.fakes import FakeRequest
from kvproof.check.subjects.sglang.hicache.machine import SETTINGS
from kvproof.check.subjects.sglang.hicache.pages import PAGE
from kvproof.check.subjects.sglang.hicache.radix import Found, RadixTree
from kvproof.check.subjects.sglang.hicache.release import REAL

TREE = "srt.mem_cache.unified_radix_cache"
MORE = (
    TREE,
    *loader.ALSO_REAL,
    "srt.mem_cache.device_pool_info",
    *(f"srt.mem_cache.hybrid_cache.{name}" for name in ("host_pool_config", "hybrid_cache_controller")),
    "srt.mem_cache.hybrid_cache.hybrid_pool_assembler",
    *(f"srt.mem_cache.pool_host.{name}" for name in ("group", "host_pool_decl")),
    "srt.mem_cache.unified_cache.storage_attachment",
)


class UnifiedTree(RadixTree):
    """`UnifiedRadixCache` over a host pool and a storage, with its cache controller."""

    real = REAL + MORE
    name = TREE

    def _host_pool(self) -> Any:
        return self.controller.mem_pool_host.anchor_entry.host_pool

    def _made(self, config: StoreConfig, table: Any) -> Any:
        plain = vars(loader.plain_settings())
        vars(SETTINGS).update(plain | self._options(config) | self._more_options())
        full = self._module("srt.mem_cache.unified_cache.component_type").ComponentType.FULL
        params = self._params.CacheInitParams(
            disable=False,
            req_to_token_pool=table,
            token_to_kv_pool_allocator=self._device,
            page_size=PAGE,
            tree_components=(full,),
        )
        cache = self._tree.UnifiedRadixCache(params)
        cache.init_hicache(SETTINGS, params)
        return cache

    def found(self, keys: list[int]) -> Found:
        found = self._match(keys)
        indices = getattr(found, "device_indices", None)  # up to 0.5.21
        num_device = found.device_prefix_len if indices is None else len(indices)
        return Found(num_device, found.host_hit_length, found.last_device_node, found.best_match_node)

    def _node(self, number: int) -> Any:
        return self.cache.tree_core.node_by_id(number)

    def _root(self) -> Any:
        return self.cache.tree_core.root_node

    def depth(self, node: Any) -> int:
        return super().depth(self._node(node)) if self.cache.is_backuped(node) or self.cache.is_root(node) else -1

    def host_value(self, node: Any) -> Any:
        return node.component_data[0].host_value

    def insert(self, keys: list[int], slots: Any) -> None:
        self.cache.insert(self._base.InsertParams(key=self._path(keys), value=slots))

    def lock(self, node: Any) -> Any:
        return node, self.cache.inc_lock_ref(node).to_dec_params()

    def unlock(self, lock: Any) -> None:
        self.cache.dec_lock_ref(*lock)

    def load_back(self, found: Found) -> Any:
        request = FakeRequest(0, [], None, None, True)
        request.last_node = found.device_node
        wrapped = self._base.InitLoadBackParams(
            best_match_node=found.host_node, host_hit_length=found.num_host, req=request
        )
        return self.cache.init_load_back(wrapped)[1]

    def evict_device(self) -> None:
        self.cache.evict(self._base.EvictParams(num_tokens=self._device.size))

    def begin_prefetch(self, name: str, node: Any, before: list[int], tokens: list[int]) -> None:
        last_hash, handle = self.cache.get_last_hash_value(node), self.handle(name)
        before_it = {"matched_prefix_tokens": self._ids(before)}
        self.cache.prefetch_from_storage(handle, node, self._ids(tokens), last_hash, None, **before_it)
