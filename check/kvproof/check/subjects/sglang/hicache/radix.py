"""SGLang's HiCache as a subject of store level: the host pool below its prefix cache, filled from a storage.

The host pool, the cache controller and `HiRadixCache` are the release's own. A slot is a page of the host pool. A key
is a page of a sequence together with the pages before it (`paths`). A store is a prefetch: the scheduler
(`_prefetch_kvcache`) asks for the pages that follow what the tree has, the storage copies those that it has to the
host, and the request takes over what was copied (`check_prefetch_progress`). A load is a load-back: the scheduler locks
the path that it found, and pages on the host are copied to the device (`init_load_back`).

The storage is the judge's. The threads of the controller do not run by themselves: the adapter runs each of them until
it waits. So the storage answers and copies when the judge reports the end of a prefetch. Of the pages that fail, the
storage says either that it does not have them, or that it has them and then does not give them; this depends on the
number of the transfer. The prefetch whose every page fails is that of a request that was aborted. After every load, the
pages that no request has locked leave the device, so that they must be loaded again.

Limits: nothing is written from the device to the host or from the host to the storage, and a request does not begin to
prefetch a page that another request is prefetching. From 0.5.16 on, a prefetch takes its slots only when the storage
has answered; those releases are not driven.
"""

import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import Assumption, Capabilities
from kvproof.check.protocol.store import (
    HIT,
    MISS,
    PENDING,
    Staged,
    StoreAdapter,
    StoreConfig,
    StoreObservation,
    keys_text,
)
from kvproof.check.subjects.loading import download, stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject, WithoutPinning, no, nothing
from kvproof.check.subjects.sglang import loader

CONTROLLER, TREE = "srt.managers.cache_controller", "srt.mem_cache.hiradix_cache"
HOST, STORAGE = "srt.mem_cache.memory_pool_host", "srt.mem_cache.hicache_storage"
REAL = (
    CONTROLLER,
    TREE,
    HOST,
    STORAGE,
    *(f"srt.mem_cache.pool_host.{name}" for name in ("base", "common", "mha", "mla")),
    "srt.mem_cache.pool_host",
)
PAGE, BYTES_OF_TOKEN = 2, 4  # tokens; a key and a value of one number of two bytes
DEVICE_PAGES = 4  # for each page of the host, so that the device is never full
ASSUMPTIONS = (
    Assumption("one-prefetch", "A request prefetches no page that another request is prefetching."),
    Assumption("copies-at-the-end", "The storage copies what it has just before the request looks at its prefetch."),
)


class Waits(BaseException):
    """A thread waits for an operation in its queue."""


class Operations(queue.Queue[Any]):
    """A queue whose reader does not wait."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next one. Raises Waits if there is none."""
        if block and self.empty():
            raise Waits
        return super().get(block, timeout)


class Storage:
    """A storage that has the first pages that it is asked for, and gives fewer of them."""

    num_there = num_given = 0  # of the pages of the one prefetch that asks

    def register_mem_pool_host(self, pool: Any) -> None:
        """It copies to this pool."""
        self.pool = pool

    def batch_exists(self, hashes: list[str], extra_info: Any = None) -> int:
        """How many pages it has, up to the first that it has not."""
        return self.num_there

    def batch_get(self, hashes: list[str], targets: list[Any], *more: Any) -> list[Any]:
        """The pages, each of which is None if it cannot be given."""
        return [target if place < self.num_given else None for place, target in enumerate(targets)]


class Device:
    """The streams and events of an accelerator: everything is over at once."""

    class Event:
        """An event that has happened."""

        record = wait = synchronize = staticmethod(nothing)

        def query(self) -> bool:
            """It has happened."""
            return True

    Stream = StubObject

    @staticmethod
    def cudart() -> StubObject:
        """The runtime, which pins no memory."""
        return StubObject(cudaHostRegister=no, cudaHostUnregister=no)

    @staticmethod
    def stream(stream: Any) -> nullcontext[None]:
        """The stream is the current one."""
        return nullcontext()


class Alone(WithoutPinning):
    """torch, in a process that has an accelerator without streams, and no other process beside it."""

    cuda = Device
    distributed = StubObject(
        ProcessGroup=StubObject,
        ReduceOp=StubObject(MIN=0, MAX=0),
        all_reduce=nothing,
        get_world_size=lambda group=None: 1,
        is_available=no,
        is_initialized=no,
    )

    def zeros(self, *sizes: Any, pin_memory: bool = False, **options: Any) -> Any:
        """A tensor in plain memory."""
        return self.torch.zeros(*sizes, **options)


def memory_of(sizes: tuple[int, ...], dtype: Any) -> Any:
    """`alloc_mmap`: a tensor in plain memory."""
    import torch

    return torch.zeros(sizes, dtype=dtype)


def native_hash(tokens: Sequence[int], before: bytes | None, page_size: int | None = None) -> str | list[str]:
    """`get_native_hash`: a hash of the tokens and of what is before them; with a page size, one for each page."""
    if page_size is None:
        return sha256((before or b"") + b"".join(token.to_bytes(4, "little") for token in tokens)).hexdigest()
    hashes: list[str] = []
    for start in range(0, len(tokens), page_size):
        last = bytes.fromhex(hashes[-1]) if hashes else before
        hashes.append(str(native_hash(tokens[start : start + page_size], last)))
    return hashes


MACHINE = StubObject(virtual_memory=lambda: StubObject(available=1 << 60, total=1 << 60))  # `psutil`
STAND_INS = loader.STAND_INS | {
    "srt.distributed": {
        f"get_{kind}_model_parallel_{what}": (lambda number=number: number)
        for kind in ("tensor", "pipeline")
        for what, number in (("rank", 0), ("world_size", 1))
    },
    "srt.layers.dp_attention": {"is_dp_attention_enabled": no},
    "srt.mem_cache.cpp_utils.native_hash": {"get_native_hash": native_hash},
    "srt.mem_cache.mmap_allocator": {"alloc_mmap": memory_of},
    "srt.utils": loader.UTILS | {"get_device_module": lambda: Device},
}


class SGLangHiCache(StoreAdapter):
    """`HiRadixCache` over a host pool and a storage."""

    capabilities = Capabilities(paths=True, lost_hits=0, refusal_slack=None)
    assumptions = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        import torch

        self.name = f"sglang-hicache {version}"
        root = download.find(loader.PACKAGE, version) / loader.PACKAGE
        self._module = self._mounted(root)
        self._tree, self._torch = self._module(TREE), torch
        alone = Alone(torch)
        modules = [sys.modules[name] for name in (f"{loader.PACKAGE}.{one}" for one in REAL) if name in sys.modules]
        for module in modules:
            module.__dict__.update(torch=alone, psutil=MACHINE, atexit=StubObject(register=nothing))
        logging.getLogger(loader.PACKAGE).setLevel(logging.CRITICAL)
        controller = self._module(CONTROLLER)
        controller.Queue = Operations
        controller.threading = StubObject(
            Event=threading.Event,
            Lock=threading.Lock,
            Thread=lambda **options: StubObject(start=nothing, join=nothing, is_alive=no),
        )
        params = "srt.mem_cache.cache_init_params"  # from 0.5.6 on
        self._params = self._module(params) if loader.is_there(root, params) else None
        alone = Alone(torch)

    def _mounted(self, root: Path) -> Any:
        stub_modules.provide({"sgl_kernel": {}, "sgl_kernel.kvcacheio": {"__getattr__": lambda name: nothing}})
        stub_modules.provide({"psutil": {}})
        return loader.mount(root, REAL, STAND_INS)

    def open(self, config: StoreConfig) -> None:
        torch, module = self._torch, self._module
        memory, num_tokens = module("srt.mem_cache.memory_pool"), DEVICE_PAGES * config.num_gpu_blocks * PAGE
        device = _device_pool(memory.MHATokenToKVPool, torch)
        allocator = module("srt.mem_cache.allocator").PagedTokenToKVPoolAllocator
        self._device = allocator(num_tokens, PAGE, torch.float16, "cpu", device, False)
        self._storage = Storage()
        stub: Any = module("srt.mem_cache.storage")
        stub.StorageBackendFactory = StubObject(create_backend=lambda *arguments: self._storage)
        self._cache = self._made(config, memory.ReqToTokenPool(1, 1, "cpu", False))
        self._cache.load_back_threshold = 0
        self._controller = self._cache.cache_controller
        self._host = self._cache.token_to_kv_pool_host
        self._host.load_to_device_per_layer = nothing  # the judge keeps the bytes
        self._fetches: dict[int, str] = {}  # transfer -> the request of its prefetch
        self._fetched: dict[str, list[int]] = {}  # such a request -> its keys
        self._locked: dict[int, Any] = {}  # transfer -> the node that its request has locked

    def _made(self, config: StoreConfig, table: Any) -> Any:
        """The cache, as a server with a storage makes it."""
        num_pages = config.num_gpu_blocks - (self._params is not None)  # from 0.5.6 on, the pool adds one
        options = {
            "hicache_ratio": 0,
            "hicache_size": (num_pages * PAGE + 0.5) * BYTES_OF_TOKEN / 1e9,
            "hicache_write_policy": "write_through",
            "hicache_io_backend": "direct",
            "hicache_mem_layout": "layer_first",
            "hicache_storage_backend": "file",
        }
        extra = f'{{"prefetch_threshold": {PAGE}}}'
        pools = {"req_to_token_pool": table, "token_to_kv_pool_allocator": self._device, "page_size": PAGE}
        params = self._params
        if params is None:
            more = {"tp_cache_group": None, "enable_metrics": False, "storage_backend_extra_config": extra}
            return self._tree.HiRadixCache(**options, **pools, **more)
        server = StubObject(
            **options,
            hicache_storage_backend_extra_config=extra,
            hicache_storage_prefetch_policy="best_effort",
            served_model_name=None,
            disable_hicache_numa_detect=True,
            extra_metric_labels=None,
        )
        return self._tree.HiRadixCache(params.CacheInitParams(disable=False, **pools), server)

    # Keys and the tree ---------------------------------------------------------------------------------------------

    def _found(self, keys: list[int]) -> Any:
        """What the tree has of the path: `match_prefix`."""
        key = self._tree.RadixKey(_tokens(keys))
        wrapped = getattr(self._tree, "MatchPrefixParams", None)  # from 0.5.8 on
        return self._cache.match_prefix(wrapped(key=key) if wrapped else key)

    def _nodes(self) -> Iterator[Any]:
        """Every node, parents before their children."""
        nodes = list(self._cache.root_node.children.values())
        while nodes:
            node = nodes.pop()
            yield node
            nodes += node.children.values()

    def _prefetch(self, name: str) -> Any:
        """The operation of a prefetch that is under way."""
        return next(one for one in self._cache.ongoing_prefetch[name] if hasattr(one, "host_indices"))

    def _run(self, thread: Callable[[], None]) -> None:
        """Run a thread of the controller until it waits."""
        with suppress(Waits):
            thread()

    # The calls -----------------------------------------------------------------------------------------------------

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        found = self._found(keys)
        num_found = (len(found.device_indices) + found.host_hit_length) // PAGE
        staged = {key for path in self._fetched.values() for key in path}
        return [HIT if at < num_found else PENDING if key in staged else MISS for at, key in enumerate(keys)]

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged:
        """As in `_prefetch_kvcache`."""
        found = self._found(keys)
        num_found = (len(found.device_indices) + found.host_hit_length) // PAGE
        wanted = keys[num_found:]
        if not wanted or any(wanted[0] in path for path in self._fetched.values()):
            return Staged([], [])
        node, name = found.last_host_node, f"{request}-{transfer}"
        self._cache.prefetch_from_storage(name, node, _tokens(wanted), node.get_last_hash_value(), None)
        if name not in self._cache.ongoing_prefetch:
            return Staged([], [])
        slots = _pages(self._prefetch(name).host_indices)
        self._fetches[transfer], self._fetched[name] = name, wanted[: len(slots)]
        return Staged(self._fetched[name], slots)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        cache, controller, storage = self._cache, self._controller, self._storage
        name = self._fetches.pop(transfer)
        operation = self._prefetch(name)
        num_lost = (len(failed) + 1) // 2 if transfer % 2 == 0 else 0
        storage.num_there, storage.num_given = len(stored) + num_lost, len(stored)
        if not stored:
            cache.release_aborted_request(name)
        waiting = controller.prefetch_queue.queue
        others = [one for one in waiting if one is not operation]
        waiting.clear()
        waiting.append(operation)
        self._run(controller.prefetch_thread_func)
        self._run(controller.prefetch_io_aux_func)
        waiting.extend(others)
        cache.check_prefetch_progress(name)
        cache.check_hicache_events()
        del self._fetched[name]

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        """As in `PrefillAdder`: lock the path, and load back what the device has not."""
        cache, found = self._cache, self._found(keys)
        node = found.last_device_node
        cache.inc_lock_ref(node)
        if found.host_hit_length:
            arguments = found.last_host_node, found.host_hit_length
            wrapped = getattr(self._tree, "InitLoadBackParams", None)  # from 0.5.10 on
            _, last = cache.init_load_back(*((wrapped(*arguments),) if wrapped else arguments))
            cache.inc_lock_ref(last)
            cache.dec_lock_ref(node)
            node = last
        cache.ready_to_load_host_cache()
        self._locked[transfer] = node
        entries = self._entries()
        return [entries[key] for key in keys]

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        cache = self._cache
        cache.check_hicache_events()
        cache.dec_lock_ref(self._locked.pop(transfer))
        wrapped = getattr(self._tree, "EvictParams", None)  # from 0.5.9 on
        cache.evict(wrapped(num_tokens=self._device.size) if wrapped else self._device.size)

    # Observing -----------------------------------------------------------------------------------------------------

    def _entries(self) -> dict[int, int]:
        entries: dict[int, int] = {}
        for node in self._nodes():
            if node.host_value is not None:
                keys = [token // PAGE for token in node.key.token_ids[::PAGE]]
                slots = _pages(node.host_value)
                if len(slots) != len(keys):
                    raise EngineFailure(f"the node of {keys_text(keys)} has slots {slots}")
                entries.update(zip(keys, slots, strict=True))
        for name, keys in self._fetched.items():
            entries.update(zip(keys, _pages(self._prefetch(name).host_indices), strict=True))
        return entries

    def observe(self) -> StoreObservation:
        free = _pages(self._host.free_slots)
        return StoreObservation(self._entries(), len(free), free_ids=free)

    def observe_part(self) -> StoreObservation:
        return StoreObservation({}, len(self._host.free_slots) // PAGE)


def _device_pool(kind: Any, torch: Any) -> Any:
    """A device pool of one layer, which says that it has no tokens: the host pool must be the larger one."""
    pool = kind.__new__(kind)
    buffers = [torch.zeros(1, 1, 1)]
    pool.__dict__.update(
        size=0, page_size=PAGE, dtype=torch.float16, store_dtype=torch.float16, device="cpu", layer_num=1,
        start_layer=0, end_layer=0, head_num=1, head_dim=1, v_head_dim=1,
        k_buffer=buffers, v_buffer=buffers,
    )  # fmt: skip
    return pool


def _tokens(keys: list[int]) -> list[int]:
    """The tokens of pages: those of a page tell its key."""
    return [key * PAGE + at for key in keys for at in range(PAGE)]


def _pages(slots: Any) -> list[int]:
    """The pages of slots of tokens, which lie in pages."""
    pages: list[int] = (slots[::PAGE] // PAGE).tolist()
    return pages
