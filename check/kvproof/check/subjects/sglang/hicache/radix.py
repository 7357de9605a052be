"""The tree of HiCache as the scheduler and the adapter call it: up to 0.5.20 `HiRadixCache`.

From 0.5.21 on it is `UnifiedRadixCache`, for full attention and with its tree core in Python. This tree is named by the
ids of its nodes, its locks are receipts, the host pool is one of a group, and what an insert has to write goes to the
device when the scheduler has processed the batch (`flush_pending_backups`). A prefetch whose storage has answered is
taken over as soon as its last page was copied.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.check.protocol.store import StoreConfig
from kvproof.check.subjects.sglang import loader
from kvproof.check.subjects.sglang.fakes import FakeRequest
from kvproof.check.subjects.sglang.hicache.machine import PAGE, SETTINGS, ids_of, keys_of, tokens_of
from kvproof.check.subjects.sglang.hicache.release import REAL, TREE

BYTES_OF_TOKEN = 4  # a key and a value of one number of two bytes

UNIFIED_TREE = "srt.mem_cache.unified_radix_cache"
MORE = (
    UNIFIED_TREE,
    *loader.ALSO_REAL,
    "srt.mem_cache.device_pool_info",
    *(f"srt.mem_cache.hybrid_cache.{name}" for name in ("host_pool_config", "hybrid_cache_controller")),
    "srt.mem_cache.hybrid_cache.hybrid_pool_assembler",
    *(f"srt.mem_cache.pool_host.{name}" for name in ("group", "host_pool_decl")),
    "srt.mem_cache.unified_cache.storage_attachment",
)


class Found(NamedTuple):
    """What the tree has of a path: the numbers of tokens, and the nodes that the scheduler locks and asks about."""

    num_device: int
    num_host: int
    device_node: Any
    host_node: Any


class RadixTree:
    """`HiRadixCache` over a host pool and a storage, with its cache controller."""

    real: tuple[str, ...] = REAL
    name = TREE
    cache: Any
    controller: Any
    host: Any

    def __init__(self, module: Callable[[str], Any], root: Path) -> None:
        self._module, self._tree = module, module(self.name)
        params = "srt.mem_cache.cache_init_params"  # from 0.5.6 on
        self._params: Any = module(params) if loader.is_there(root, params) else None
        self._base = module("srt.mem_cache.base_prefix_cache")
        self._num_added = 0  # pages that the host pool has beyond those of its size: one from 0.5.5.post3 on

    def make(self, config: StoreConfig, device: Any, table: Any) -> None:
        """Make a new cache with as many pages of the host as the configuration says. device: the allocator there."""
        self._device = device
        while True:
            self.cache = self._made(config, table)
            self.controller = self.cache.cache_controller
            self.host = self._host_pool()
            if self.host.page_num == config.num_gpu_blocks:
                break
            self._num_added += self.host.page_num - config.num_gpu_blocks
        self.cache.load_back_threshold = 0

    def _host_pool(self) -> Any:
        return self.cache.token_to_kv_pool_host

    def _options(self, config: StoreConfig) -> dict[str, Any]:
        """The settings of a server with HiCache and a storage."""
        num_pages = config.num_gpu_blocks - self._num_added
        return {
            "hicache_ratio": 0,
            "hicache_size": (num_pages * PAGE + 0.5) * BYTES_OF_TOKEN / 1e9,
            "hicache_write_policy": "write_through",
            "hicache_io_backend": "direct",
            "hicache_mem_layout": "layer_first",
            "hicache_storage_backend": "file",
        }

    def _more_options(self) -> dict[str, Any]:
        """Those that the later releases have in addition."""
        return {
            "hicache_storage_backend_extra_config": f'{{"prefetch_threshold": {PAGE}}}',
            "hicache_storage_prefetch_policy": "best_effort",
            "hicache_host_memory_mode": "cache",
            "served_model_name": None,
            "disable_hicache_numa_detect": True,
            "extra_metric_labels": None,
            "file_storage_path": None,
        }

    def _made(self, config: StoreConfig, table: Any) -> Any:
        """The cache, as a server with a storage makes it."""
        options = self._options(config)
        pools = {"req_to_token_pool": table, "token_to_kv_pool_allocator": self._device, "page_size": PAGE}
        params = self._params
        if params is None:
            extra = f'{{"prefetch_threshold": {PAGE}}}'
            more = {"tp_cache_group": None, "enable_metrics": False, "storage_backend_extra_config": extra}
            return self._tree.HiRadixCache(**options, **pools, **more)
        plain = vars(loader.plain_settings())
        vars(SETTINGS).update(plain | options | self._more_options())
        return self._tree.HiRadixCache(params.CacheInitParams(disable=False, **pools), SETTINGS)

    def _path(self, keys: list[int]) -> Any:
        return self._tree.RadixKey(self._ids(tokens_of(keys)))

    def _ids(self, tokens: list[int]) -> Any:
        """Tokens, as the release has them."""
        array = getattr(self._module("srt.mem_cache.radix_cache"), "array", None)
        return tokens if array is None else array("q", tokens)

    def _match(self, keys: list[int]) -> Any:
        """`match_prefix`."""
        wrapped = getattr(self._tree, "MatchPrefixParams", None)  # from 0.5.8 on
        key = self._path(keys)
        return self.cache.match_prefix(wrapped(key=key) if wrapped else key)

    def found(self, keys: list[int]) -> Found:
        """What the tree has of a path."""
        found = self._match(keys)
        return Found(len(found.device_indices), found.host_hit_length, found.last_device_node, found.last_host_node)

    def _root(self) -> Any:
        return self.cache.root_node

    def keys(self, node: Any) -> list[int]:
        """The pages of a node."""
        return keys_of(ids_of(node.key))

    def nodes(self) -> Iterator[Any]:
        """Every node, parents before their children."""
        nodes = list(self._root().children.values())
        while nodes:
            node = nodes.pop()
            yield node
            nodes += node.children.values()

    def depth(self, node: Any) -> int:
        """How many pages there are up to the end of a node."""
        num = 0
        while node.parent is not None:
            num, node = num + len(self.keys(node)), node.parent
        return num

    def host_value(self, node: Any) -> Any:
        """The slots of a node on the host; None if it has none."""
        return node.host_value

    def device_value(self, node: Any) -> Any:
        """The slots of a node on the device; None if it has none."""
        return node.value

    def insert(self, keys: list[int], slots: Any) -> None:
        """Publish pages that were computed, and free those that the tree has already on the device."""
        key, wrapped = self._path(keys), getattr(self._base, "InsertParams", None)
        answer = self.cache.insert(wrapped(key=key, value=slots) if wrapped else key, *(() if wrapped else (slots,)))
        num_there = answer if isinstance(answer, int) else answer.prefix_len
        if num_there:
            self._device.free(slots[:num_there])

    def lock(self, node: Any) -> Any:
        """Lock the path to a node on the device, as a request does; the lock is given to `unlock`."""
        self.cache.inc_lock_ref(node)
        return node

    def unlock(self, lock: Any) -> None:
        """Give up a lock."""
        self.cache.dec_lock_ref(lock)

    def load_back(self, found: Found) -> Any:
        """Load back what the device has not; the last node of the path."""
        cache, wrapped = self.cache, getattr(self._tree, "InitLoadBackParams", None)  # from 0.5.10 on
        arguments = found.host_node, found.num_host
        return cache.init_load_back(*((wrapped(*arguments),) if wrapped else arguments))[1]

    def evict_device(self) -> None:
        """What nothing has locked leaves the device."""
        wrapped = getattr(self._tree, "EvictParams", None)  # from 0.5.9 on
        self.cache.evict(wrapped(num_tokens=self._device.size) if wrapped else self._device.size)

    def handle(self, name: str) -> Any:
        """A request, as the calls of the tree name it."""
        kind = getattr(self._base, "CacheRequestHandle", None)  # from 0.5.20 on
        return name if kind is None else kind(name, 0)

    def prefetches(self) -> dict[Any, Any]:
        """The prefetches that are under way, by their requests."""
        return {getattr(name, "rid", name): one for name, one in self.cache.ongoing_prefetch.items()}

    def prefetch(self, name: str) -> Any:
        """The operation of a prefetch that is under way."""
        return next(one for one in self.prefetches()[name] if hasattr(one, "token_ids") and hasattr(one, "last_hash"))

    def begin_prefetch(self, name: str, node: Any, before: list[int], tokens: list[int]) -> None:
        """Ask for tokens below a node (`_prefetch_kvcache`). before: those up to the node."""
        self.cache.prefetch_from_storage(self.handle(name), node, self._ids(tokens), node.get_last_hash_value(), None)


class UnifiedTree(RadixTree):
    """`UnifiedRadixCache` over a host pool and a storage, with its cache controller."""

    real = REAL + MORE
    name = UNIFIED_TREE

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

    def device_value(self, node: Any) -> Any:
        return node.component_data[0].value

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
