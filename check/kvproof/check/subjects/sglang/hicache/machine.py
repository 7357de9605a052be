"""Stand-ins for what HiCache runs on: the device with its streams and events, threads, the storage and the settings.

The threads of HiCache's cache controller run only when the adapter says so, each until it waits. A key is a page of
tokens, and the tokens of a page tell its key.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from hashlib import sha256
from typing import Any, ClassVar

from kvproof.check.subjects.loading.stub_modules import StubObject, WithoutPinning, no, nothing

PAGE = 2  # tokens


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
    """A storage that has the first pages that it is asked for, and gives fewer of them.

    num_there, num_given: of the pages of the one prefetch that asks. before_it_lacks: is called before it first lacks a
    page that it said it has. takes: whether it keeps the pages that it is given.
    """

    num_there = num_given = 0
    takes = True
    before_it_lacks: Callable[[], object] = staticmethod(nothing)

    def register_mem_pool_host(self, pool: Any) -> None:
        """Take the pool of the host into which pages are copied."""
        self.pool = pool
        self.num_asked = self.num_gave = 0

    register_mem_host_pool_v2 = on_host_pools_registered = staticmethod(nothing)

    def begin(self, num_there: int, num_given: int) -> None:
        """A prefetch is about to ask: the storage has, and gives, so many of its pages."""
        self.num_there, self.num_given, self.num_asked, self.num_gave = num_there, num_given, 0, 0
        self.before_it_lacks = nothing

    def batch_exists(self, hashes: list[str], extra_info: Any = None) -> int:
        """How many of the pages that follow those it was asked for it has, up to the first that it has not."""
        num = min(len(hashes), self.num_there - self.num_asked)
        self.num_asked += len(hashes)
        return max(0, num)

    def batch_get(self, hashes: list[str], targets: list[Any], *more: Any) -> list[Any]:
        """The pages, each of which is None if it cannot be given."""
        places = range(self.num_gave, self.num_gave + len(hashes))
        self.num_gave += len(hashes)
        if self.num_given in places:
            self.before_it_lacks()
        return [target if place < self.num_given else None for place, target in zip(places, targets, strict=True)]

    def batch_set(self, hashes: list[str], pages: Any, *more: Any) -> bool:
        """Whether it has kept the pages."""
        return self.takes


class Event:
    """An event of the device. Those recorded while `Device` is `busy` happen when the adapter says so."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.has_happened = True

    wait = synchronize = staticmethod(nothing)

    def record(self, stream: Any = None) -> None:
        """It happens after what the device has to do now."""
        self.has_happened = not Device.busy

    def query(self) -> bool:
        """Whether it has happened."""
        return self.has_happened

    def elapsed_time(self, other: Any) -> float:
        """In milliseconds."""
        return 0.0


class Stream:
    """A stream of copies."""

    wait_stream = synchronize = wait_event = staticmethod(nothing)


class Device:
    """The streams and events of an accelerator. busy: what begins now takes until the adapter lets its event happen."""

    busy: ClassVar[bool] = False
    Event = Event
    Stream = Stream

    @staticmethod
    def cudart() -> StubObject:
        """The runtime, which pins no memory."""
        return StubObject(cudaHostRegister=no, cudaHostUnregister=no)

    @staticmethod
    def stream(stream: Any) -> nullcontext[None]:
        """The stream is the current one."""
        return nullcontext()

    @staticmethod
    def current_stream() -> Any:
        """The current stream."""
        return Stream()


class Alone(WithoutPinning):
    """torch, in a process that has an accelerator without streams, and no other process beside it."""

    cuda = Device
    distributed = StubObject(
        ProcessGroup=StubObject,
        ReduceOp=StubObject(MIN=0, MAX=0),
        all_reduce=nothing,
        barrier=nothing,
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
THREADS = StubObject(
    Event=threading.Event,
    Lock=threading.Lock,
    RLock=threading.RLock,
    Thread=lambda **options: StubObject(start=nothing, join=nothing, is_alive=no),
)
SETTINGS = StubObject()  # of the server; a release is mounted once in a process, and reads these
PARALLEL = StubObject(
    tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_tp_rank=0, attn_tp_size=1, attn_dp_rank=0, attn_cp_rank=0,
    attn_cp_size=1, attn_dcp_size=1, attn_dcp_rank=0, dcp_enabled=False, launch_world_size=1, nnodes=1,
)  # fmt: skip


class Threads:
    """The threads of one controller."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller

    def run(self, *threads: str) -> None:
        """Run threads of the controller until each of them waits."""
        for thread in threads:
            if function := getattr(self._controller, thread, None):
                with suppress(Waits):
                    function()

    def answer(self, operation: Any) -> None:
        """The storage says which pages of a prefetch it has; the others wait."""
        buffer = getattr(self._controller, "prefetch_buffer", None)
        self.run_alone("prefetch_queue", [operation], "prefetch_thread_func")
        if buffer is not None and buffer is not self._controller.prefetch_buffer:  # the thread makes one when it begins
            self._controller.prefetch_buffer.queue.extendleft(reversed(buffer.queue))

    def run_alone(self, name: str, operations: list[Any], thread: str) -> None:
        """Run a thread with these operations of its queue only."""
        waiting = getattr(self._controller, name).queue
        mine = [one for one in waiting if one in operations]
        others = [one for one in waiting if one not in operations]
        waiting.clear()
        waiting.extend(mine)
        self.run(thread)
        waiting.extend(others)


def tokens_of(keys: list[int]) -> list[int]:
    """The tokens of pages: those of a page tell its key."""
    return [key * PAGE + at for key in keys for at in range(PAGE)]


def ids_of(tokens: Any) -> list[int]:
    """The tokens of a key of the tree, or of a list."""
    return list(getattr(tokens, "token_ids", tokens))


def keys_of(tokens: list[int]) -> list[int]:
    """The pages of tokens, which fill them."""
    return [token // PAGE for token in tokens[::PAGE]]


def pages_of(slots: Any) -> list[int]:
    """The pages of slots of tokens, which lie in pages."""
    pages: list[int] = (slots[::PAGE] // PAGE).tolist()
    return pages
