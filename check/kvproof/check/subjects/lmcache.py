"""LMCache's L1 manager as a subject of store level, and its paged allocator as one of pool level.

The L1 manager is judged in the releases 0.5.0 to 0.5.6, the allocator in 0.5.2 to 0.5.6.

The L1 manager is the release's own. It decides which key has which object of memory, who may read it and who writes
it. Both locks are leases of a native class, `TTLLock`, whose clock is that of the machine. `LeaseLock` does the same
with a clock that the judge sets (`lmcache_native.pyi` has its contract). The memory manager is a stand-in: it has a
fixed number of objects of one size, so that a slot is an object. Every other module is a stub, which fails if used.

The adapter calls as `StorageManager` and the storage controllers do: all writers share one tag, a failed write is
finished and deleted, and the eviction controller names the keys to evict. A look-up is a reservation that ends at once.

`PagedTensorMemoryAllocator` and its memory objects (`TensorMemoryObj`) are the release's own; the numbers of blocks are
the addresses of the objects. A page has one byte. References are counted by the object: the last `ref_count_down` gives
the page back. A count that falls below zero is reported in the log and set back to zero, and in LMCache's other
allocators the memory is then not taken back again, because its object is no longer valid; so a pool of this kind must
ignore a double free. Counts are not shown, because a free page has the count of its last owner, or one at first.
"""

from functools import partial
from typing import Any

import torch

from kvproof.check.protocol.capabilities import PoolCan, StoreCan
from kvproof.check.protocol.manager import Assumption, Observation, Refused
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.store import (
    HIT,
    MISS,
    NO_SLOT,
    PENDING,
    Staged,
    StoreAdapter,
    StoreConfig,
    StoreObservation,
)
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.loading.stub_modules import StubObject, mount_real, nothing

MANAGER, ERRORS = "v1.distributed.l1_manager", "v1.distributed.error"
TAG = {"tag": "store"}  # of every writer, from 0.5.6 on
NEW = {"mode": "new"}  # keys that are there are left out, before 0.5.6

OBJECTS, ALLOCATOR = "v1.memory_management", "v1.memory_allocators.paged_tensor_memory_allocator"
SHAPE, DTYPE = torch.Size([1]), torch.uint8


class Clock:
    """The seconds that the judge let pass."""

    def __init__(self) -> None:
        self.now = 0


class LeaseLock:
    """`TTLLock`: a count that is zero when its time is over, which each `lock` sets again."""

    __slots__ = ("clock", "count", "seconds", "until")

    def __init__(self, clock: Clock, seconds: int) -> None:
        self.clock, self.seconds = clock, seconds
        self.count = self.until = 0

    def lock(self) -> None:
        """Count one more, after the time is over one."""
        self.count = self.count + 1 if self.clock.now < self.until else 1
        self.until = self.clock.now + self.seconds

    def unlock(self) -> None:
        """Count one less, but not less than none."""
        self.count = max(0, self.count - 1)

    def is_locked(self) -> bool:
        """Whether something is counted, and the time is not over."""
        return self.count > 0 and self.clock.now < self.until


class Memory:
    """A memory manager with so many objects of one size."""

    def __init__(self, errors: Any, num_slots: int) -> None:
        self.errors, self.num_slots = errors, num_slots
        self.free_slots = list(range(num_slots))

    def allocate(self, layout: object, number: int) -> tuple[Any, list[Any]]:
        """So many objects, or none if there are not enough."""
        if number > len(self.free_slots):
            return self.errors.OUT_OF_MEMORY, []
        taken, self.free_slots = self.free_slots[:number], self.free_slots[number:]
        return self.errors.SUCCESS, [
            StubObject(slot=slot, meta=StubObject(address=slot), get_size=lambda: 1, set_l1_manager=nothing)
            for slot in taken
        ]

    def free(self, objects: list[Any]) -> Any:
        """Take the objects back."""
        self.free_slots += [one.slot for one in objects]
        return self.errors.SUCCESS

    def get_backend_type(self, memory_object: object) -> None:
        """The medium, which no one asks for here."""


def silent_logger(name: str) -> StubObject:
    """A logger that writes nothing."""
    return StubObject(**dict.fromkeys(("debug", "info", "warning", "error"), nothing))


STAND_INS: dict[str, dict[str, Any]] = {
    "logging": {"init_logger": silent_logger},
    "v1.distributed.config": {"get_configured_capacity_bytes": lambda config: {}},
    "v1.distributed.internal_api": {
        "L1ManagerInterface": object,
        "L1ObjectMeta": dict,
        "L1OperationResult": tuple,
    },
    "v1.gpu_connector.gds_context": {"close_l1_gds_context": nothing},
    "v1.mp_observability.event": {"Event": nothing},
    "v1.mp_observability.event_bus": {
        "get_event_bus": lambda: StubObject(publish=nothing, has_subscribers=lambda event: False)
    },
    "v1.mp_observability.otel_init": {"register_gauge": nothing},
}
ASSUMPTIONS = (
    Assumption("reports-once", "Each transfer ends once, with the keys that it got, even when its lease is over."),
    Assumption(
        "fences-resets", "When the cache is cleared by force, transfers under way end before another one begins."
    ),
)


class LMCacheL1(StoreAdapter):
    """`L1Manager` over a stand-in for its memory."""

    assumptions = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        self.name = f"lmcache-l1 {version}"
        folder = download.find("lmcache", version)
        module = mount_real("lmcache", folder / "lmcache", (MANAGER, ERRORS), STAND_INS)
        self._errors = module(ERRORS).L1Error
        self._module = module(MANAGER)
        self._has_tags = hasattr(self._module.L1Manager, "finish_write_and_delete")
        self.capabilities = StoreCan(
            leases=True, loads_any_key=True, evicts_on_call=True, reset=True, lost_hits=0, refusal_slack=0
        )

    def open(self, config: StoreConfig) -> None:
        self._clock, self._memory = Clock(), Memory(self._errors, config.num_slots)
        self._module.TTLLock = partial(LeaseLock, self._clock)
        self._module.L1MemoryManager = lambda config: self._memory
        seconds = config.lease_seconds
        self._manager: Any = self._module.L1Manager(
            StubObject(
                gds_l1_config=None,
                memory_config=StubObject(devdax_path="", use_hugepages=False),
                write_ttl_seconds=seconds,
                read_ttl_seconds=seconds,
                tag="",
            )
        )

    # The calls -----------------------------------------------------------------------------------------------------

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        found = self._manager.reserve_read(keys)
        self._manager.finish_read([key for key in keys if found[key][1] is not None])
        unreadable = self._errors.KEY_NOT_READABLE
        answers = [found[key] for key in keys]
        return [HIT if found else PENDING if error is unreadable else MISS for error, found in answers]

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        found = self._manager.reserve_read(keys)
        return [NO_SLOT if found[key][1] is None else found[key][1].slot for key in keys]

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        self._manager.finish_read(keys)

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        options = TAG if self._has_tags else NEW
        answers = self._manager.reserve_write(keys, [False] * len(keys), None, **options)
        taken = {key: one.slot for key, (error, one) in answers.items() if error is self._errors.SUCCESS}
        if not taken and any(error is self._errors.OUT_OF_MEMORY for error, _ in answers.values()):
            return Refused()
        return Staged(list(taken), list(taken.values()), [])

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        manager = self._manager
        if self._has_tags:
            manager.finish_write(stored, **TAG)
            manager.finish_write_and_delete(failed, **TAG)
        else:
            manager.finish_write(stored)
            manager.finish_write(failed)
            manager.delete(failed)

    def touch(self, request: int, keys: list[int]) -> None:
        self._manager.touch_keys(keys)

    def evict(self, keys: list[int]) -> list[int]:
        answers = self._manager.delete(keys)
        return [key for key in keys if answers[key] is self._errors.SUCCESS]

    def clear(self) -> None:
        self._manager.clear(force=True)

    def advance(self, seconds: int) -> None:
        self._clock.now += seconds

    # Observing -----------------------------------------------------------------------------------------------------

    def observe(self) -> StoreObservation:
        objects = self._manager._objects
        staged = {key: one for key, by_tag in getattr(self._manager, "_staging", {}).items() for one in by_tag.values()}
        entries = {key: one.memory_obj.slot for key, one in (objects | staged).items()}
        refs = {key: _count_of(one) for key, one in objects.items()} | dict.fromkeys(staged, -1)
        return StoreObservation(entries, len(self._memory.free_slots), refs, list(self._memory.free_slots))

    def observe_part(self) -> StoreObservation:
        return StoreObservation({}, len(self._memory.free_slots))


def _count_of(state: Any) -> int:
    """-1 for what is being written, else the number of read locks."""
    if state.write_lock.is_locked():
        return -1
    return state.read_lock.count if state.read_lock.is_locked() else 0


class Monitor:
    """The statistics, which nobody reads here."""

    update_local_cache_usage = update_active_memory_objs_count = staticmethod(nothing)

    @staticmethod
    def GetOrCreate() -> "Monitor":  # noqa: N802
        """The one monitor."""
        return Monitor()


def undecorated(function: Any) -> Any:
    """A decorator that measures nothing."""
    return function


def size_in_bytes(shapes: list[torch.Size], dtypes: list[torch.dtype]) -> int:
    """`get_size_bytes`: the bytes of so many tensors."""
    return sum(shape.numel() * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True))


POOL_STAND_INS: dict[str, dict[str, Any]] = {
    "": {"device_ops": None, "torch_dev": StubObject(), "torch_device_type": "cpu"},
    "logging": {"init_logger": silent_logger},
    "observability": {"LMCStatsMonitor": Monitor},
    "integration.vllm.utils": {"get_size_bytes": size_in_bytes},
    "utils": {"_lmcache_nvtx_annotate": undecorated, "get_size_bytes": size_in_bytes},
}


class LMCacheAllocator:
    """`PagedTensorMemoryAllocator`."""

    capabilities = PoolCan(fork=True, ignores_double_free=True)
    assumptions: tuple[Assumption, ...] = (
        Assumption("shares-what-it-holds", "The caller counts references up only while it holds the object."),
    )

    def __init__(self, version: str) -> None:
        self.name = f"lmcache-allocator {version}"
        folder = download.find("lmcache", version)
        module = mount_real("lmcache", folder / "lmcache", (OBJECTS, ALLOCATOR), POOL_STAND_INS)
        self._class = module(ALLOCATOR).PagedTensorMemoryAllocator

    def open(self, config: PoolConfig) -> None:
        self._allocator: Any = self._class(torch.zeros(config.num_gpu_blocks, dtype=DTYPE), [SHAPE], [DTYPE])
        self._objects = {one.meta.address: one for one in self._allocator.free_blocks}

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        objects = self._allocator.batched_allocate(SHAPE, DTYPE, num_blocks)
        return Refused() if objects is None else [one.meta.address for one in objects]

    def share(self, blocks: list[int]) -> None:
        for block in blocks:
            self._objects[block].ref_count_up()

    def free(self, blocks: list[int]) -> None:
        for block in blocks:
            self._objects[block].ref_count_down()

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        """It has no prefix cache."""

    def find(self, pages: list[int]) -> list[int]:
        """It has no prefix cache."""
        return []

    def reset_cache(self) -> bool:
        """It has no prefix cache."""
        return False

    def observe(self) -> Observation:
        ids = [one.meta.address for one in self._allocator.free_blocks]
        return Observation({}, (len(ids), 0), free_ids=ids)
