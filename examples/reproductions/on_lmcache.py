"""LMCache's L1 manager and the controllers above it, without its memory, its compiled types and its threads.

Memory is a number of objects of one size, locks have no time, and what is loaded from the second level or stored to it
is over as soon as it is asked for. A script makes the steps of the controllers' threads itself, one after the other.
"""

from collections.abc import Iterable
from typing import Any

from on_any_engine import StandIn, nothing, with_options
from on_stub_modules import import_modules

DISTRIBUTED = "v1.distributed"
CONTROLLERS = f"{DISTRIBUTED}.storage_controllers"


class Lock:
    """`TTLLock`: a lock that counts, and never runs out."""

    def __init__(self, seconds: int = 0) -> None:
        self.count = 0

    def lock(self) -> None:
        """Count one more."""
        self.count += 1

    def unlock(self) -> None:
        """Count one less, but not less than none."""
        self.count = max(0, self.count - 1)

    def is_locked(self) -> bool:
        """Whether anybody holds it."""
        return self.count > 0


class Bitmap:
    """`Bitmap`: so many bits, of which the first `ones` are set."""

    def __init__(self, size: int, ones: int = 0) -> None:
        self.size, self.bits = size, set(range(ones))

    def set(self, bit: int) -> None:
        """Set a bit."""
        self.bits.add(bit)

    def test(self, bit: int) -> bool:
        """Whether a bit is set."""
        return bit in self.bits

    def popcount(self) -> int:
        """How many are set."""
        return len(self.bits)

    def count_leading_ones(self) -> int:
        """How many are set before the first that is not."""
        return next((bit for bit in range(self.size) if bit not in self.bits), self.size)

    def get_indices_list(self) -> list[int]:
        """Those that are set."""
        return sorted(self.bits)

    def gather(self, items: list[Any]) -> list[Any]:
        """The items whose bits are set."""
        return [items[bit] for bit in sorted(self.bits)]

    def _with(self, bits: Iterable[int]) -> "Bitmap":
        other = Bitmap(self.size)
        other.bits = set(bits)
        return other

    def __or__(self, other: "Bitmap") -> "Bitmap":
        return self._with(self.bits | other.bits)

    def __and__(self, other: "Bitmap") -> "Bitmap":
        return self._with(self.bits & other.bits)

    def __invert__(self) -> "Bitmap":
        return self._with(set(range(self.size)) - self.bits)


class Memory:
    """Memory for so many objects."""

    def __init__(self, num_objects: int) -> None:
        self.num_free = self.num_objects = num_objects

    def allocate(self, layout: Any, number: int) -> Any:
        """So many objects, or none if there are not enough."""
        errors = module(f"{DISTRIBUTED}.error").L1Error
        if number > self.num_free:
            return errors.OUT_OF_MEMORY, []
        self.num_free -= number
        meta = StandIn(address=0)
        return errors.SUCCESS, [StandIn(meta=meta, get_size=lambda: 1, set_l1_manager=nothing) for _ in range(number)]

    def free(self, objects: list[Any]) -> Any:
        """Take objects back."""
        self.num_free += len(objects)
        return module(f"{DISTRIBUTED}.error").L1Error.SUCCESS

    def get_backend_type(self, one: Any) -> None:
        """The medium, which nobody asks for."""

    def get_memory_usage(self) -> tuple[int, int]:
        """How much is taken, and how much there is."""
        return self.num_objects - self.num_free, self.num_objects


class Listener:
    """A listener of the manager that does nothing, whatever it hears."""

    def __getattr__(self, name: str) -> Any:
        return nothing


LOGGER = StandIn(**dict.fromkeys(("debug", "info", "warning", "error", "exception"), nothing))
BUS = StandIn(publish=nothing, has_subscribers=lambda event: False)
NATIVE = {"TTLLock": Lock, "Bitmap": Bitmap}
module = import_modules(
    "lmcache",
    (
        *(f"{DISTRIBUTED}.{name}" for name in ("api", "error", "eviction", "internal_api", "l1_manager")),
        *(f"{DISTRIBUTED}.{name}" for name in ("storage_controller", "eviction_policy")),
        *(f"{DISTRIBUTED}.eviction_policy.{name}" for name in ("factory", "isolated_lru", "lru", "noop")),
        CONTROLLERS,
        *(f"{CONTROLLERS}.{name}" for name in ("adapter_lifecycle", "eviction_controller", "prefetch_controller")),
        *(f"{CONTROLLERS}.{name}" for name in ("prefetch_policy", "store_controller", "store_policy", "utils")),
        "v1.multiprocess.modules.lookup",
    ),
    {
        "lmcache_native": NATIVE,
        "logging": {"init_logger": lambda name: LOGGER},
        "native_storage_ops": NATIVE,
        "v1.distributed.config": {"get_configured_capacity_bytes": lambda config: {}},
        "v1.mp_observability.event": {"Event": nothing},
        "v1.mp_observability.event_bus": {"get_event_bus": lambda: BUS},
        "v1.mp_observability.logger.l1_stats_logger": {"L1ManagerStatsLogger": Listener},
        "v1.mp_observability.otel_init": {"register_gauge": nothing},
        "v1.mp_observability.prometheus_controller": {
            "get_prometheus_controller": lambda: StandIn(register_logger=nothing)
        },
    },
)


class SecondLevel:
    """An adapter of the second level that has all keys at once. stored: what was stored to it."""

    def __init__(self) -> None:
        self.stored, self.tasks = list[Any](), dict[int, int]()

    def _event(self) -> int:
        """The descriptor that a thread would wait for; there is no thread."""
        return 0

    get_store_event_fd = get_lookup_and_lock_event_fd = get_load_event_fd = _event
    submit_unlock = staticmethod(nothing)

    def _begin(self, keys: list[Any], objects: Any = None, **more: Any) -> int:
        self.tasks[len(self.tasks)] = len(keys)
        return len(self.tasks) - 1

    def _result(self, task: int) -> Bitmap:
        return Bitmap(self.tasks[task], ones=self.tasks[task])

    submit_lookup_and_lock_task = submit_load_task = _begin
    query_lookup_and_lock_result = query_load_result = _result

    def submit_store_task(self, keys: list[Any], objects: Any) -> int:
        """Store these objects."""
        self.stored += keys
        return self._begin(keys)


def new_manager(num_objects: int = 8) -> Any:
    """An L1 manager with memory for so many objects."""
    module(f"{DISTRIBUTED}.l1_manager").L1MemoryManager = lambda config: Memory(num_objects)
    memory = StandIn(devdax_path="", use_hugepages=False)
    config = StandIn(gds_l1_config=None, memory_config=memory, write_ttl_seconds=600, read_ttl_seconds=300, tag="")
    return module(f"{DISTRIBUTED}.l1_manager").L1Manager(config)


def write(manager: Any, keys: list[Any]) -> None:
    """Write an object for each of these keys."""
    tag = {"tag": "store"} if hasattr(manager, "finish_write_and_delete") else {}  # from 0.5.6 on
    taken = manager.reserve_write(keys, [False] * len(keys), None, **tag)
    assert all(taken[key][1] is not None for key in keys), "there is no memory"
    manager.finish_write(keys, **tag)


def prefetch(manager: Any, second_level: SecondLevel, keys: list[Any], num_readers: int = 1) -> None:
    """Load these keys from the second level, for so many readers. It makes the steps of the controller's thread."""
    policies, descriptor = module(f"{CONTROLLERS}.prefetch_policy"), StandIn(index=0, config=None)
    controller = module(f"{CONTROLLERS}.prefetch_controller").PrefetchController(
        manager, [second_level], [descriptor], policies.DefaultPrefetchPolicy()
    )
    with_options(controller.submit_prefetch_request, keys=keys, layout_desc=None, extra_count=num_readers - 1)
    controller._drain_submission_queue()
    controller._start_pending_requests()
    controller._process_lookup_completions(0)
    controller._process_load_completions(0)
