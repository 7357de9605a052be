"""What stands in for the world around vLLM's NIXL connector: a platform, an attention back end, sockets and threads.

Nothing here decides anything about KV. What is asked of a stand-in and is not listed here fails. Much of the connector
catches every exception, so that `UNKNOWN` keeps what was asked, and `require_known` raises it as a fault of kvproof.
"""

import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import msgspec

from kvproof.check.protocol.fault_attribution import is_fault_of_kvproof
from kvproof.check.subjects.loading.strict import UNKNOWN, Strict
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.vllm.v1_scheduler_loader import yes


class Platform(Strict):
    """A device whose memory NIXL can register."""

    device_type = "cuda"
    register_custom_kv_cache_specs = staticmethod(nothing)
    is_xpu = is_rocm = is_cpu = is_tpu = staticmethod(no)
    is_cuda = is_cuda_alike = staticmethod(yes)
    get_nixl_supported_devices: Callable[[], dict[str, Any]] = staticmethod(dict)
    get_nixl_memory_type = staticmethod(lambda: "VRAM")
    discover_numa_topology: Callable[[], list[Any]] = staticmethod(list)
    set_device = staticmethod(nothing)


class Backend(Strict):
    """An attention back end whose cache has blocks first, then heads, then slots."""

    @staticmethod
    def get_name() -> str:
        return "FLASH_ATTN"

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, **rest: Any
    ) -> tuple[int, ...]:
        return num_blocks, num_kv_heads, block_size, 2 * head_size

    @staticmethod
    def get_kv_cache_block_dim(*sizes: Any, **options: Any) -> int:
        return 0

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int]:
        return [1]

    @staticmethod
    def get_kv_cache_stride_order(*arguments: Any, **options: Any) -> tuple[int, ...]:
        return 0, 1, 2, 3


class BlockTable:
    """A table whose kernel has blocks of the manager's size."""

    @staticmethod
    def map_to_kernel_blocks(blocks: Any, ratio: int, numbers: Any) -> Any:
        if ratio != 1:
            UNKNOWN.append("BlockTable.map_to_kernel_blocks with blocks of two sizes")
        return blocks


class Log(Strict):
    """A log that nobody reads; what is logged while an exception is handled that is a fault of kvproof is kept."""

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    def _note(*arguments: Any, **options: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and is_fault_of_kvproof(error) and not isinstance(error, NoAnswer):
            UNKNOWN.append(str(error))

    debug = info = warning = error = exception = debug_once = info_once = warning_once = _note

    @staticmethod
    def isEnabledFor(level: int) -> bool:  # noqa: N802, as the standard library names it
        return False


# Threads -----------------------------------------------------------------------------------------------------------


class AtOnce:
    """A thread that has ended when it is started: that of a listener, which only says where it listens."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), **options: Any) -> None:
        self._target, self._arguments = target, args

    def start(self) -> None:
        self._target(*self._arguments)

    def join(self, timeout: float | None = None) -> None:
        """It has ended."""


class Turn:
    """An event of a loop that runs once whenever the judge lets it: nobody ever waits for it."""

    def __init__(self) -> None:
        self.is_raised = False
        self._left = 0

    def begin(self) -> None:
        """Let the loop that asks whether this event is set go round once."""
        self._left = 1

    def is_set(self) -> bool:
        if self._left:
            self._left -= 1
            return False
        return True

    def set(self) -> None:
        self.is_raised = True

    def clear(self) -> None:
        """The loop parks here, and was let on at once; what was raised before this turn has been served."""

    def wait(self, timeout: float | None = None) -> bool:
        return True


class Parked:
    """A thread of a loop, of which the judge runs one round at a time."""

    def __init__(self, target: Callable[[], None], **options: Any) -> None:
        self.target = target

    def start(self) -> None:
        """It waits for its first turn."""

    def join(self, timeout: float | None = None) -> None:
        """It does not run."""


class Later(Strict):
    """An executor whose jobs run when the judge says so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.jobs: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, function, arguments))
        return future

    def run(self, job: int, fails: bool) -> None:
        """Do the job at this place; or the peer does not answer. Raises what is a fault of kvproof."""
        future, function, arguments = self.jobs.pop(job)
        try:
            if fails:
                raise NoAnswer
            result = function(*arguments)
        except Exception as error:
            if is_fault_of_kvproof(error) and not isinstance(error, NoAnswer):
                raise
            future.set_exception(error)
        else:
            future.set_result(result)

    def shutdown(self, wait: bool = True, **options: Any) -> None:
        """Nothing runs by itself."""


WRITER_THREADS = StubObject(Thread=Parked, Event=Turn, Lock=threading.Lock, RLock=threading.RLock)
LISTENER_THREADS = StubObject(Thread=AtOnce, Event=threading.Event, Lock=threading.Lock)


# Sockets -----------------------------------------------------------------------------------------------------------


class NoAnswer(Exception):
    """The peer of a handshake does not answer in time."""


def address(host: str, port: int) -> str:
    """The address of a host and a port."""
    return f"tcp://{host}:{port}"


def path_of(scheme: str, host: str, port: int) -> str:
    """In place of `make_zmq_path`."""
    return address(host, port)


class Socket(Strict):
    """A socket for one question after another. answers: what its peer answers each rank; None if there is no peer."""

    def __init__(self, answers: Mapping[tuple[int, int], bytes] | None, now: float) -> None:
        self._answers, self._now = answers, now
        self._wanted: tuple[int, int] = 0, 0

    def setsockopt(self, option: Any, value: Any) -> None:
        """There is nothing to wait for."""

    def send(self, message: bytes) -> None:
        _, *rank = msgspec.msgpack.decode(message)
        self._wanted = (rank[0], rank[1])

    def recv_multipart(self) -> list[bytes]:
        if self._answers is None:
            raise NoAnswer
        return [self._answers[self._wanted], msgspec.msgpack.encode(self._now)]
