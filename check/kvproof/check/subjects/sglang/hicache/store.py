"""The calls of a store, as HiCache has them.

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
from collections.abc import Callable
from typing import Any

from kvproof.check.protocol.capabilities import StoreCan
from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import Assumption
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
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.sglang import loader
from kvproof.check.subjects.sglang.hicache.machine import (
    PAGE,
    Device,
    Storage,
    Threads,
    ids_of,
    keys_of,
    pages_of,
    tokens_of,
)
from kvproof.check.subjects.sglang.hicache.radix import RadixTree, UnifiedTree
from kvproof.check.subjects.sglang.hicache.release import CONTROLLER, device_pool, mounted

DEVICE_PAGES = 4  # for each page of the host, so that the device is seldom full
LOADS_MAX = 3  # batches of loads that the controller has under way
ASSUMPTIONS = (
    Assumption("one-prefetch", "A request neither prefetches nor computes a page that another request is prefetching."),
    Assumption("copies-at-the-end", "The storage copies what it has just before the request looks at its prefetch."),
    Assumption("copies-in-any-order", "The storage takes the pages of different requests in any order."),
    Assumption("flushes-when-idle", "The cache is reset when no request is there; copies under way are fenced."),
)


class SGLangHiCache(StoreAdapter):
    """HiCache of a release, over the tree that it has, a host pool and a storage."""

    assumptions = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        import torch

        self.name = f"sglang-hicache {version}"
        root = download.find(loader.PACKAGE, version) / loader.PACKAGE
        kind = RadixTree if loader.is_there(root, RadixTree.name) else UnifiedTree
        self._module, self._torch = mounted(root, kind.name, kind.real), torch
        self._tree = kind(self._module, root)
        logging.getLogger(loader.PACKAGE).setLevel(logging.CRITICAL)
        takes = self._module(CONTROLLER).PrefetchOperation.__init__.__code__.co_varnames
        self._asks_first = "host_indices" not in takes  # from 0.5.16 on
        self.capabilities = StoreCan(
            paths=True, lost_hits=0, refusal_slack=None, reset=True, asks_first=self._asks_first, copies_all=True
        )

    def open(self, config: StoreConfig) -> None:
        torch, module = self._torch, self._module
        memory, num_tokens = module("srt.mem_cache.memory_pool"), DEVICE_PAGES * config.num_slots * PAGE
        device = device_pool(memory.MHATokenToKVPool, torch)
        allocator = module("srt.mem_cache.allocator").PagedTokenToKVPoolAllocator
        self._device = allocator(num_tokens, PAGE, torch.float16, "cpu", device, False)
        self._storage = Storage()
        stub: Any = module("srt.mem_cache.storage")
        stub.StorageBackendFactory = StubObject(create_backend=lambda *arguments: self._storage)
        Device.busy = False
        self._tree.make(config, self._device, memory.ReqToTokenPool(1, 1, "cpu", False))
        self._cache, self._controller, self._host = self._tree.cache, self._tree.controller, self._tree.host
        self._threads = Threads(self._controller)
        for name in ("load_to_device_per_layer", "backup_from_device_all_layer"):
            vars(self._host).update({name: self._copied, f"{name}_physical": self._copied})
        if hasattr(self._controller, "storage_batch_size"):
            self._controller.storage_batch_size = 1
        self._forget()

    def _copied(self, pool: Any, host: Any, device: Any, *others: Any, **options: Any) -> None:
        """Pages are copied between the host and the device. The judge keeps the bytes; here is which pages."""
        self._host_page |= dict(zip(pages_of(device), pages_of(host), strict=True))

    def _slots_copied(self, keys: list[int], entries: dict[int, int]) -> list[int]:
        """The page of the host to or from which each key was copied; that of its entry if it was not copied."""
        on_device = self._pages(self._tree.device_value)
        return [self._host_page.get(on_device.get(key, -1), entries[key]) for key in keys]

    def _forget(self) -> None:
        self._host_page: dict[int, int] = {}  # by page of the device: with which page of the host it was copied
        self._fetches: dict[int, str] = {}  # transfer -> the request of its prefetch
        self._fetched: dict[str, list[int]] = {}  # such a request -> its keys
        self._written: dict[int, list[int]] = {}  # transfer -> the keys that it writes from the device
        self._events: dict[int, list[Any]] = {}  # transfer -> the events of its copies
        self._copies: dict[int, list[Any]] = {}  # transfer -> the operations that copy what it wrote to the storage
        self._locked: dict[int, Any] = {}  # transfer -> the node that its request has locked

    # The calls -----------------------------------------------------------------------------------------------------

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        """A page of the device is a hit if the host has it too, and is not being written."""
        found, entries = self._tree.found(keys), self._entries()
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
        found = self._tree.found(keys)
        num_found = (found.num_device + found.num_host) // PAGE
        wanted = keys[num_found:]
        if not wanted or self._is_fetched(wanted[:1]) or self._tree.depth(found.host_node) < num_found:
            return Staged([], [])  # a page below one that the host does not have is asked for as if it were the first
        name = f"{request}-{transfer}"
        self._tree.begin_prefetch(name, found.host_node, tokens_of(keys[:num_found]), tokens_of(wanted))
        if name not in self._tree.prefetches():
            return Staged([], [])
        self._fetches[transfer], self._fetched[name] = name, wanted
        return Asked(wanted) if self._asks_first else self._slots_of(transfer)

    def _is_fetched(self, keys: list[int]) -> bool:
        """Whether a prefetch of one of these keys is under way."""
        return any(set(keys).intersection(path) for path in self._fetched.values())

    def _slots_of(self, transfer: int) -> Staged:
        """The slots that a prefetch has got."""
        name = self._fetches[transfer]
        if name in self._tree.prefetches():
            slots = pages_of(self._tree.prefetch(name).host_indices)
            self._fetched[name] = self._fetched[name][: len(slots)]
            return Staged(self._fetched[name], slots)
        del self._fetches[transfer], self._fetched[name]
        return Staged([], [])

    def begin_asked(self, transfer: int, request: int, keys: list[int]) -> Staged:
        """The storage has these pages. If it has none, the request may have been aborted before it answered."""
        name = self._fetches[transfer]
        operation = self._tree.prefetch(name)
        if not keys and transfer % 2:
            self._cache.release_aborted_request(self._tree.handle(name))
        self._storage.begin(len(keys), len(keys))
        self._threads.answer(operation)
        self._cache.check_hicache_events()
        return self._slots_of(transfer)

    def _begin_write(self, transfer: int, keys: list[int]) -> Staged:
        """A request has computed these pages, and publishes them."""
        slots = None if self._is_fetched(keys) else self._device.alloc(len(keys) * PAGE)
        if slots is None:
            return Staged([], [])
        before, acks = self._entries(), self._controller.ack_write_queue
        num_acks = len(acks)
        self._host_page.clear()
        Device.busy = True
        self._tree.insert(keys, slots)
        if hasattr(self._cache, "flush_pending_backups"):  # from 0.5.22 on
            self._cache.flush_pending_backups()
        Device.busy = False
        entries = self._entries()
        new = [key for key in keys if key in entries and key not in before]
        if new:
            self._written[transfer] = new
            self._events[transfer] = [ack.finish_event for ack in acks[num_acks:]]
        return Staged(new, self._slots_copied(new, entries), from_device=True)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> Copied | None:
        if transfer in self._fetches:
            self._end_prefetch(transfer, stored, failed)
            return None
        del self._written[transfer]
        self._happen(transfer)
        before = list(self._controller.backup_queue.queue)
        self._cache.check_hicache_events()
        copies = [one for one in self._controller.backup_queue.queue if one not in before]
        self._tree.evict_device()
        if not copies:
            return None
        self._copies[transfer] = copies
        slots = [slot for one in copies for slot in pages_of(one.host_indices)]
        return Copied([key for one in copies for key in keys_of(ids_of(one.token_ids))], slots)

    def _end_prefetch(self, transfer: int, stored: list[int], failed: list[int]) -> None:
        cache, storage = self._cache, self._storage
        name = self._fetches.pop(transfer)
        handle, operation = self._tree.handle(name), self._tree.prefetch(name)
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
            self._threads.answer(operation)
        self._threads.run_alone("prefetch_buffer", [operation], "prefetch_io_aux_func")
        self._end(cache.check_prefetch_progress, handle)
        cache.check_hicache_events()
        self._tree.evict_device()
        del self._fetched[name]

    def _end(self, call: Callable[[Any], object], handle: Any) -> None:
        """End a prefetch by a call of its request, after the scheduler has seen what was copied until now."""
        self._threads.run("prefetch_sync_thread_func")
        self._cache.check_hicache_events()
        call(handle)

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        """As in `PrefillAdder`: lock the path, and load back what the device has not."""
        cache, found = self._cache, self._tree.found(keys)
        lock = self._tree.lock(found.device_node)
        if found.num_host:
            of_device, lock = lock, self._tree.lock(self._tree.load_back(found))
            self._tree.unlock(of_device)
        acks = self._controller.ack_load_queue
        if len(acks) >= LOADS_MAX:
            self._land()
            cache.check_hicache_events()
        self._host_page.clear()
        Device.busy = True
        batch = cache.ready_to_load_host_cache()
        Device.busy = False
        layers = self._controller.layer_done_counter.events
        self._events[transfer] = [] if batch < 0 else [acks[-1].finish_event, *layers[batch].load_events]
        self._locked[transfer] = lock
        return self._slots_copied(keys, self._entries())

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        if transfer in self._copies:
            self._storage.takes = transfer % 3 != 0
            self._threads.run_alone("backup_queue", self._copies.pop(transfer), "backup_thread_func")
            self._cache.check_hicache_events()
            return
        self._happen(transfer)
        self._cache.check_hicache_events()
        self._tree.unlock(self._locked.pop(transfer))
        self._tree.evict_device()

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
        for name in list(self._tree.prefetches()):
            self._cache.release_aborted_request(self._tree.handle(name))
        self._cache.reset()
        self._device.clear()
        self._forget()

    # Observing -----------------------------------------------------------------------------------------------------

    def _pages(self, value_of: Callable[[Any], Any]) -> dict[int, int]:
        """The page of each key, of the host or of the device."""
        pages: dict[int, int] = {}
        for node in self._tree.nodes():
            value = value_of(node)
            if value is not None:
                keys, slots = self._tree.keys(node), pages_of(value)
                if len(slots) != len(keys):
                    raise EngineFailure(f"the node of {keys_text(keys)} has slots {slots}")
                pages.update(zip(keys, slots, strict=True))
        return pages

    def _entries(self) -> dict[int, int]:
        entries = self._pages(self._tree.host_value)
        prefetches = self._tree.prefetches()
        for name, keys in self._fetched.items():
            indices = self._tree.prefetch(name).host_indices if name in prefetches else None
            if indices is not None:
                entries.update(zip(keys, pages_of(indices), strict=False))
        return entries

    def observe(self) -> StoreObservation:
        host = self._host  # from 0.5.16 on, what was freed comes into the list when it is needed
        free = [page for slots in (host.free_slots, *getattr(host, "release_slots", ())) for page in pages_of(slots)]
        return StoreObservation(self._entries(), host.available_size() // PAGE, free_ids=free)

    def observe_part(self) -> StoreObservation:
        return StoreObservation({}, self._host.available_size() // PAGE)
