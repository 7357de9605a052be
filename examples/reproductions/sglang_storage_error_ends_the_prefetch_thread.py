"""SGLang 0.5.21: an exception of the storage ends the only thread that looks prefetches up (see PR 36882).

HiCache asks a storage by one thread which pages of a request it has. If a call of the storage raises, the thread ends:
no prefetch is looked up any more, and each request that waits for one waits until a timeout. From 0.5.22 on such a
prefetch counts as one without a hit. Run it with the SGLang that is to be tried: exit code 1 if the fault is there.
"""

import logging
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

from on_any_engine import StandIn, fault_if, nothing
from sglang.srt.managers.cache_controller import HiCacheController

logging.disable(logging.CRITICAL)
stop = Event()


class Operations:
    """The queue of the thread: two prefetches, and then it is asked to stop."""

    def __init__(self) -> None:
        self.waiting = [StandIn(request_id=number, is_terminated=lambda: False) for number in (1, 2)]

    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self.waiting

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next prefetch. Raises Empty at the end."""
        if not self.waiting:
            stop.set()
            raise Empty
        return self.waiting.pop(0)


def query(operation: Any) -> tuple[list[str], int]:
    """The storage is away for a moment; then it has a page."""
    if operation.request_id == 1:
        raise OSError("the storage does not answer")
    return ["a"], 1


looked_up: Any = SimpleQueue()
controller = HiCacheController.__new__(HiCacheController)
controller.__dict__.update(
    storage_stop_event=stop,
    prefetch_queue=Operations(),
    prefetch_hit_queue=looked_up,
    prefetch_hits_sync_groups=[],
    page_size=1,
    _all_reduce=nothing,
    _storage_hit_query=query,
)
try:
    controller.prefetch_thread_func()
except OSError as error:
    print(f"the thread ends: {error}")
done = [looked_up.get().request_id for _ in range(looked_up.qsize())]
print(f"prefetches that were looked up: {done}")
fault_if(2 not in done, "the second prefetch is never looked up")
