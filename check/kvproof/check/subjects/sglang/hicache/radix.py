"""HiCache over `HiRadixCache`, up to 0.5.20, and what it has in common with the later tree.

A store is a prefetch or a write. A prefetch: the scheduler (`_prefetch_kvcache`) asks for the pages that follow what
the tree has, the storage copies those that it has to the host, and the request takes over what was copied
(`check_prefetch_progress`). From 0.5.16 on, a prefetch has slots only when the storage has said which pages it has. A
write: a request has computed its pages on the device and publishes them in the tree (`insert`), and pages that the host
does not have are written through to it; what was written is then copied to the storage. Which of both a store is
depends on its last page and its request.

A load is a load-back: the scheduler locks the path that it found, and pages on the host are copied to the device
(`init_load_back`). After the end of a load or a store, the pages that nothing has locked leave the device, so that they
must be loaded again.

The storage is the judge's. Of the pages of a prefetch that fail, the storage does not give those that it said it has,
or up to 0.5.15 does not have them, or the request looks at its prefetch, which ends it, before they were copied. If all
fail, the request was aborted, before pages were copied or after some were. A reset (`flush_cache`) comes when no
request is there: prefetches that are under way are aborted before it.

Limits: a request neither prefetches nor computes a page that another request is prefetching. Nothing is written back
when it leaves the device (`write_back`): the policy is to write through.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import Assumption, Capabilities
from kvproof.check.protocol.store import (
    HIT,
    MISS,
    PENDING,
    Asked,
    Copied,
    Staged,
    StoreAdapter,
    StoreConfig,
    StoreObservation,
    keys_text,
)
from kvproof.check.subjects.loading import download, stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.sglang import loader
from kvproof.check.subjects.sglang.hicache.machine import (
    MACHINE,
    PARALLEL,
    SETTINGS,
    THREADS,
    Alone,
    Device,
    Operations,
    Storage,
    Waits,
    memory_of,
    native_hash,
)

CONTROLLER, TREE = "srt.managers.cache_controller", "srt.mem_cache.hiradix_cache"
HOST, STORAGE = "srt.mem_cache.memory_pool_host", "srt.mem_cache.hicache_storage"
REAL = (
    CONTROLLER,
    TREE,
    HOST,
    STORAGE,
    "srt.mem_cache.l2_transfer",
    *(f"srt.mem_cache.pool_host.{name}" for name in ("base", "common", "mha", "mla")),
    "srt.mem_cache.pool_host",
)
PAGE, BYTES_OF_TOKEN = 2, 4  # tokens; a key and a value of one number of two bytes
DEVICE_PAGES = 4  # for each page of the host, so that the device is seldom full
LOADS_MAX = 3  # batches of loads that the controller has under way
ASSUMPTIONS = (
    Assumption("one-prefetch", "A request neither prefetches nor computes a page that another request is prefetching."),
    Assumption("copies-at-the-end", "The storage copies what it has just before the request looks at its prefetch."),
    Assumption("copies-in-any-order", "The storage takes the pages of different requests in any order."),
    Assumption("flushes-when-idle", "The cache is reset when no request is there; copies under way are fenced."),
)


class Found(NamedTuple):
    """What the tree has of a path: the numbers of tokens, and the nodes that the scheduler locks and asks about."""

    num_device: int
    num_host: int
    device_node: Any
    host_node: Any


class SGLangHiCache(StoreAdapter):
    """`HiRadixCache` over a host pool and a storage."""

    assumptions = ASSUMPTIONS
    real: tuple[str, ...] = REAL
    tree_module = TREE

    def __init__(self, version: str) -> None:
        import torch

        self.name = f"sglang-hicache {version}"
        root = download.find(loader.PACKAGE, version) / loader.PACKAGE
        self._module = self._mounted(root)
        self._tree, self._torch = self._module(self.tree_module), torch
        alone = Alone(torch)
        names = (f"{loader.PACKAGE}.{name}" for name in self.real)
        for module in [sys.modules[name] for name in names if name in sys.modules]:
            module.__dict__.update(torch=alone, psutil=MACHINE, atexit=StubObject(register=nothing))
            if hasattr(module, "Queue"):
                vars(module).update(Queue=Operations, threading=THREADS)
            if hasattr(module, "_cuda_host_register"):
                vars(module)["_cuda_host_register"] = nothing
            if hasattr(module, "STORAGE_BATCH_SIZE"):  # from 0.5.20 on
                vars(module)["STORAGE_BATCH_SIZE"] = 1  # so that a prefetch can end after any page
        logging.getLogger(loader.PACKAGE).setLevel(logging.CRITICAL)
        controller = self._module(CONTROLLER)
        params = "srt.mem_cache.cache_init_params"  # from 0.5.6 on
        self._params: Any = self._module(params) if loader.is_there(root, params) else None
        self._base = self._module("srt.mem_cache.base_prefix_cache")
        takes = controller.PrefetchOperation.__init__.__code__.co_varnames
        self._asks_first = "host_indices" not in takes  # from 0.5.16 on
        self._num_added = 0  # pages that the host pool has beyond those of its size: one from 0.5.5.post3 on
        self.capabilities = Capabilities(
            paths=True, lost_hits=0, refusal_slack=None, reset=True, asks_first=self._asks_first
        )

    def _mounted(self, root: Path) -> Any:
        stub_modules.provide({"sgl_kernel": {}, "sgl_kernel.kvcacheio": {"__getattr__": lambda name: nothing}})
        stub_modules.provide({"psutil": {}})
        settings = dict.fromkeys(loader.SETTINGS, lambda: SETTINGS) | {"get_parallel": lambda: PARALLEL}
        kernels = {"__getattr__": lambda name: no}
        stand_ins = loader.STAND_INS | {
            "kernels.ops.kvcache.hicache": kernels,
            "srt.distributed": {
                f"get_{kind}_model_parallel_{what}": (lambda number=number: number)
                for kind in ("tensor", "pipeline")
                for what, number in (("rank", 0), ("world_size", 1))
            },
            "srt.layers.dp_attention": {"is_dp_attention_enabled": no},
            "srt.mem_cache.cpp_utils.native_hash": {"get_native_hash": native_hash},
            "srt.mem_cache.host_memory": {"available_host_memory_bytes": lambda **options: 1 << 60},
            "srt.mem_cache.mmap_allocator": {"alloc_mmap": memory_of},
            "srt.mem_cache.storage.mmap": {"alloc_mmap": memory_of},
            "srt.runtime_context": settings,
            "srt.server_args": settings,
            "srt.utils": loader.UTILS | {"get_device_module": lambda: Device},
        }
        return loader.mount(root, self.real, stand_ins)

    def open(self, config: StoreConfig) -> None:
        torch, module = self._torch, self._module
        memory, num_tokens = module("srt.mem_cache.memory_pool"), DEVICE_PAGES * config.num_gpu_blocks * PAGE
        device = _device_pool(memory.MHATokenToKVPool, torch)
        allocator = module("srt.mem_cache.allocator").PagedTokenToKVPoolAllocator
        self._device = allocator(num_tokens, PAGE, torch.float16, "cpu", device, False)
        self._storage = Storage()
        stub: Any = module("srt.mem_cache.storage")
        stub.StorageBackendFactory = StubObject(create_backend=lambda *arguments: self._storage)
        Device.busy = False
        while True:
            self._cache = self._made(config, memory.ReqToTokenPool(1, 1, "cpu", False))
            self._controller = self._cache.cache_controller
            self._host = self._host_pool()
            if self._host.page_num == config.num_gpu_blocks:
                break
            self._num_added += self._host.page_num - config.num_gpu_blocks
        self._cache.load_back_threshold = 0
        for name in ("load_to_device_per_layer", "backup_from_device_all_layer"):
            vars(self._host).update({name: nothing, f"{name}_physical": nothing})  # the judge keeps the bytes
        if hasattr(self._controller, "storage_batch_size"):
            self._controller.storage_batch_size = 1
        self._forget()

    def _forget(self) -> None:
        self._fetches: dict[int, str] = {}  # transfer -> the request of its prefetch
        self._fetched: dict[str, list[int]] = {}  # such a request -> its keys
        self._written: dict[int, list[int]] = {}  # transfer -> the keys that it writes from the device
        self._events: dict[int, list[Any]] = {}  # transfer -> the events of its copies
        self._copies: dict[int, list[Any]] = {}  # transfer -> the operations that copy what it wrote to the storage
        self._locked: dict[int, Any] = {}  # transfer -> the node that its request has locked

    def _host_pool(self) -> Any:
        return self._cache.token_to_kv_pool_host

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

    # The tree, as the release calls it -----------------------------------------------------------------------------

    def _path(self, keys: list[int]) -> Any:
        return self._tree.RadixKey(self._ids(_tokens(keys)))

    def _ids(self, tokens: list[int]) -> Any:
        """Tokens, as the release has them."""
        array = getattr(self._module("srt.mem_cache.radix_cache"), "array", None)
        return tokens if array is None else array("q", tokens)

    def _match(self, keys: list[int]) -> Any:
        """`match_prefix`."""
        wrapped = getattr(self._tree, "MatchPrefixParams", None)  # from 0.5.8 on
        key = self._path(keys)
        return self._cache.match_prefix(wrapped(key=key) if wrapped else key)

    def _found(self, keys: list[int]) -> Found:
        found = self._match(keys)
        return Found(len(found.device_indices), found.host_hit_length, found.last_device_node, found.last_host_node)

    def _root(self) -> Any:
        return self._cache.root_node

    def _nodes(self) -> Iterator[Any]:
        """Every node, parents before their children."""
        nodes = list(self._root().children.values())
        while nodes:
            node = nodes.pop()
            yield node
            nodes += node.children.values()

    def _depth(self, node: Any) -> int:
        """How many pages there are up to the end of a node."""
        num = 0
        while node.parent is not None:
            num, node = num + len(self._keys_of(node)), node.parent
        return num

    def _host_value(self, node: Any) -> Any:
        """The slots of a node on the host; None if it has none."""
        return node.host_value

    def _insert(self, keys: list[int], slots: Any) -> None:
        """Publish pages that were computed, and free those that the tree has already on the device."""
        key, wrapped = self._path(keys), getattr(self._base, "InsertParams", None)
        answer = self._cache.insert(wrapped(key=key, value=slots) if wrapped else key, *(() if wrapped else (slots,)))
        num_there = answer if isinstance(answer, int) else answer.prefix_len
        if num_there:
            self._device.free(slots[:num_there])

    def _lock(self, node: Any) -> Any:
        self._cache.inc_lock_ref(node)
        return node

    def _unlock(self, lock: Any) -> None:
        self._cache.dec_lock_ref(lock)

    def _load_back(self, found: Found) -> Any:
        """Load back what the device has not; the last node of the path."""
        cache, wrapped = self._cache, getattr(self._tree, "InitLoadBackParams", None)  # from 0.5.10 on
        arguments = found.host_node, found.num_host
        return cache.init_load_back(*((wrapped(*arguments),) if wrapped else arguments))[1]

    def _evict_device(self) -> None:
        """What nothing has locked leaves the device."""
        wrapped = getattr(self._tree, "EvictParams", None)  # from 0.5.9 on
        self._cache.evict(wrapped(num_tokens=self._device.size) if wrapped else self._device.size)

    def _handle(self, name: str) -> Any:
        """A request, as the calls of the tree name it."""
        kind = getattr(self._base, "CacheRequestHandle", None)  # from 0.5.20 on
        return name if kind is None else kind(name, 0)

    def _prefetches(self) -> dict[Any, Any]:
        """The prefetches that are under way, by their requests."""
        return {getattr(name, "rid", name): one for name, one in self._cache.ongoing_prefetch.items()}

    def _prefetch(self, name: str) -> Any:
        """The operation of a prefetch that is under way."""
        return next(one for one in self._prefetches()[name] if hasattr(one, "token_ids") and hasattr(one, "last_hash"))

    def _begin_prefetch(self, name: str, node: Any, before: list[int], tokens: list[int]) -> None:
        """Ask for tokens below a node (`_prefetch_kvcache`). before: those up to the node."""
        self._cache.prefetch_from_storage(self._handle(name), node, self._ids(tokens), node.get_last_hash_value(), None)

    # The threads of the controller ---------------------------------------------------------------------------------

    def _run(self, *threads: str) -> None:
        """Run threads of the controller until each of them waits."""
        for thread in threads:
            if function := getattr(self._controller, thread, None):
                with suppress(Waits):
                    function()

    def _answer(self, operation: Any) -> None:
        """The storage says which pages of a prefetch it has; the others wait."""
        buffer = getattr(self._controller, "prefetch_buffer", None)
        self._run_alone("prefetch_queue", [operation], "prefetch_thread_func")
        if buffer is not None and buffer is not self._controller.prefetch_buffer:  # the thread makes one when it begins
            self._controller.prefetch_buffer.queue.extendleft(reversed(buffer.queue))

    def _run_alone(self, name: str, operations: list[Any], thread: str) -> None:
        """Run a thread with these operations of its queue only."""
        waiting = getattr(self._controller, name).queue
        mine = [one for one in waiting if one in operations]
        others = [one for one in waiting if one not in operations]
        waiting.clear()
        waiting.extend(mine)
        self._run(thread)
        waiting.extend(others)

    # The calls -----------------------------------------------------------------------------------------------------

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        """A page of the device is a hit if the host has it too, and is not being written."""
        found, entries = self._found(keys), self._entries()
        num_device, num_found = found.num_device // PAGE, (found.num_device + found.num_host) // PAGE
        staged = {key for path in (*self._fetched.values(), *self._written.values()) for key in path}
        answers = []
        for at, key in enumerate(keys):
            is_hit = num_device <= at < num_found or (at < num_device and key in entries and key not in staged)
            answers.append(HIT if is_hit else PENDING if key in staged else MISS)
        return answers

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Asked:
        if (keys[-1] + request) % 2:
            return self._begin_write(transfer, keys)
        found = self._found(keys)
        num_found = (found.num_device + found.num_host) // PAGE
        wanted = keys[num_found:]
        if not wanted or self._is_fetched(wanted[:1]) or self._depth(found.host_node) < num_found:
            return Staged([], [])  # a page below one that the host does not have is asked for as if it were the first
        name = f"{request}-{transfer}"
        self._begin_prefetch(name, found.host_node, _tokens(keys[:num_found]), _tokens(wanted))
        if name not in self._prefetches():
            return Staged([], [])
        self._fetches[transfer], self._fetched[name] = name, wanted
        return Asked(wanted) if self._asks_first else self._slots_of(transfer)

    def _is_fetched(self, keys: list[int]) -> bool:
        """Whether a prefetch of one of these keys is under way."""
        return any(set(keys).intersection(path) for path in self._fetched.values())

    def _slots_of(self, transfer: int) -> Staged:
        """The slots that a prefetch has got."""
        name = self._fetches[transfer]
        if name in self._prefetches():
            slots = _pages(self._prefetch(name).host_indices)
            self._fetched[name] = self._fetched[name][: len(slots)]
            return Staged(self._fetched[name], slots)
        del self._fetches[transfer], self._fetched[name]
        return Staged([], [])

    def begin_asked(self, transfer: int, request: int, keys: list[int]) -> Staged:
        """The storage has these pages. If it has none, the request may have been aborted before it answered."""
        name = self._fetches[transfer]
        operation = self._prefetch(name)
        if not keys and transfer % 2:
            self._cache.release_aborted_request(self._handle(name))
        self._storage.begin(len(keys), len(keys))
        self._answer(operation)
        self._cache.check_hicache_events()
        return self._slots_of(transfer)

    def _begin_write(self, transfer: int, keys: list[int]) -> Staged:
        """A request has computed these pages, and publishes them."""
        slots = None if self._is_fetched(keys) else self._device.alloc(len(keys) * PAGE)
        if slots is None:
            return Staged([], [])
        before, acks = self._entries(), self._controller.ack_write_queue
        num_acks = len(acks)
        Device.busy = True
        self._insert(keys, slots)
        if hasattr(self._cache, "flush_pending_backups"):  # from 0.5.22 on
            self._cache.flush_pending_backups()
        Device.busy = False
        entries = self._entries()
        new = [key for key in keys if key in entries and key not in before]
        if new:
            self._written[transfer] = new
            self._events[transfer] = [ack.finish_event for ack in acks[num_acks:]]
        return Staged(new, [entries[key] for key in new], from_device=True)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> Copied | None:
        if transfer in self._fetches:
            self._end_prefetch(transfer, stored, failed)
            return None
        del self._written[transfer]
        self._happen(transfer)
        before = list(self._controller.backup_queue.queue)
        self._cache.check_hicache_events()
        copies = [one for one in self._controller.backup_queue.queue if one not in before]
        self._evict_device()
        if not copies:
            return None
        self._copies[transfer] = copies
        slots = [slot for one in copies for slot in _pages(one.host_indices)]
        return Copied([key for one in copies for key in _keys(_ids(one.token_ids))], slots)

    def _end_prefetch(self, transfer: int, stored: list[int], failed: list[int]) -> None:
        cache, storage = self._cache, self._storage
        name = self._fetches.pop(transfer)
        handle, operation = self._handle(name), self._prefetch(name)
        num_lost = (len(failed) + 1) // 2 if transfer % 2 == 0 or self._asks_first else 0
        num_given = len(stored) if stored or not self._asks_first else len(failed) // 2
        storage.begin(len(stored) + num_lost, num_given)
        if not stored and (num_given == 0 or transfer % 3 == 0):
            cache.release_aborted_request(handle)
        elif not stored:
            storage.before_it_lacks = lambda: self._end(cache.release_aborted_request, handle)
        elif failed and transfer % 3 == 1:
            storage.before_it_lacks = lambda: self._end(cache.check_prefetch_progress, handle)
        if not self._asks_first:
            self._answer(operation)
        self._run_alone("prefetch_buffer", [operation], "prefetch_io_aux_func")
        self._end(cache.check_prefetch_progress, handle)
        cache.check_hicache_events()
        self._evict_device()
        del self._fetched[name]

    def _end(self, call: Callable[[Any], object], handle: Any) -> None:
        """End a prefetch by a call of its request, after the scheduler has seen what was copied until now."""
        self._run("prefetch_sync_thread_func")
        self._cache.check_hicache_events()
        call(handle)

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        """As in `PrefillAdder`: lock the path, and load back what the device has not."""
        cache, found = self._cache, self._found(keys)
        lock = self._lock(found.device_node)
        if found.num_host:
            of_device, lock = lock, self._lock(self._load_back(found))
            self._unlock(of_device)
        acks = self._controller.ack_load_queue
        if len(acks) >= LOADS_MAX:
            self._land()
            cache.check_hicache_events()
        Device.busy = True
        batch = cache.ready_to_load_host_cache()
        Device.busy = False
        layers = self._controller.layer_done_counter.events
        self._events[transfer] = [] if batch < 0 else [acks[-1].finish_event, *layers[batch].load_events]
        self._locked[transfer] = lock
        entries = self._entries()
        return [entries[key] for key in keys]

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        if transfer in self._copies:
            self._storage.takes = transfer % 3 != 0
            self._run_alone("backup_queue", self._copies.pop(transfer), "backup_thread_func")
            self._cache.check_hicache_events()
            return
        self._happen(transfer)
        self._cache.check_hicache_events()
        self._unlock(self._locked.pop(transfer))
        self._evict_device()

    def _land(self) -> None:
        """Every load that is under way has landed."""
        for transfer in self._locked.keys() & self._events.keys():
            self._happen(transfer)

    def _happen(self, transfer: int) -> None:
        """The copies of a transfer have landed."""
        for event in self._events.pop(transfer, ()):
            event.has_happened = True

    def clear(self) -> None:
        """As in `flush_cache`."""
        self._land()
        for name in list(self._prefetches()):
            self._cache.release_aborted_request(self._handle(name))
        self._cache.reset()
        self._device.clear()
        self._forget()

    # Observing -----------------------------------------------------------------------------------------------------

    def _keys_of(self, node: Any) -> list[int]:
        return _keys(_ids(node.key))

    def _entries(self) -> dict[int, int]:
        entries: dict[int, int] = {}
        for node in self._nodes():
            value = self._host_value(node)
            if value is not None:
                keys, slots = self._keys_of(node), _pages(value)
                if len(slots) != len(keys):
                    raise EngineFailure(f"the node of {keys_text(keys)} has slots {slots}")
                entries.update(zip(keys, slots, strict=True))
        prefetches = self._prefetches()
        for name, keys in self._fetched.items():
            indices = self._prefetch(name).host_indices if name in prefetches else None
            if indices is not None:
                entries.update(zip(keys, _pages(indices), strict=False))
        return entries

    def observe(self) -> StoreObservation:
        host = self._host  # from 0.5.16 on, what was freed comes into the list when it is needed
        free = [page for slots in (host.free_slots, *getattr(host, "release_slots", ())) for page in _pages(slots)]
        return StoreObservation(self._entries(), host.available_size() // PAGE, free_ids=free)

    def observe_part(self) -> StoreObservation:
        return StoreObservation({}, self._host.available_size() // PAGE)


def _device_pool(kind: Any, torch: Any) -> Any:
    """A device pool of one layer, which says that it has no tokens: the host pool must be the larger one."""
    pool = kind.__new__(kind)
    buffers, places = [torch.zeros(1, 1, 1, dtype=torch.float16)], torch.zeros(1, dtype=torch.int64)
    pool.__dict__.update(
        size=0, page_size=PAGE, dtype=torch.float16, store_dtype=torch.float16, device="cpu", layer_num=1,
        start_layer=0, end_layer=0, head_num=1, head_dim=1, v_head_dim=1,
        k_buffer=buffers, v_buffer=buffers, k_data_ptrs=places, v_data_ptrs=places, k_scale_buffer=None,
        model_layer_ids=(0,), row_dim=1, kv_cache_layout="nhd", hicache_write_back_staging=None,
        host_capacity_tokens=None,
    )  # fmt: skip
    return pool


def _tokens(keys: list[int]) -> list[int]:
    """The tokens of pages: those of a page tell its key."""
    return [key * PAGE + at for key in keys for at in range(PAGE)]


def _ids(tokens: Any) -> list[int]:
    """The tokens of a key of the tree, or of a list."""
    return list(getattr(tokens, "token_ids", tokens))


def _keys(tokens: list[int]) -> list[int]:
    """The pages of tokens, which fill them."""
    return [token // PAGE for token in tokens[::PAGE]]


def _pages(slots: Any) -> list[int]:
    """The pages of slots of tokens, which lie in pages."""
    pages: list[int] = (slots[::PAGE] // PAGE).tolist()
    return pages
