"""SGLang 0.5.5 to 0.5.21: an exception of the storage ends the only thread that copies to it (issue 38427).

HiCache copies pages of host memory to a storage by one thread. If a call of the storage raises, the thread ends. The
pages that wait to be copied stay held, so that the host cannot evict them, until the server is started again.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

import logging
from queue import SimpleQueue
from threading import Event
from typing import Any

from on_any_engine import StandIn, fault_if
from sglang.srt.managers.cache_controller import HiCacheController

logging.disable(logging.CRITICAL)
stop = Event()


class Operations:
    """The queue of the thread: two copies, and then it is asked to stop."""

    def __init__(self) -> None:
        self.waiting = [StandIn(id=number, completed_tokens=0) for number in (1, 2)]

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next copy; None at the end."""
        if not self.waiting:
            stop.set()
            return None
        return self.waiting.pop(0)


def copy(operation: Any) -> None:
    """The storage is away for a moment."""
    if operation.id == 1:
        raise OSError("the storage does not answer")


acknowledged: Any = SimpleQueue()
controller = HiCacheController.__new__(HiCacheController)
controller.__dict__.update(
    storage_stop_event=stop,
    stop_event=stop,
    backup_queue=Operations(),
    ack_backup_queue=acknowledged,
    backup_skip=False,
    prefetch_tp_group=None,
    _page_backup=copy,
)
try:
    controller.backup_thread_func()
except OSError as error:
    print(f"the thread ends: {error}")
done = [acknowledged.get().id for _ in range(acknowledged.qsize())]
print(f"copies that were acknowledged: {done}")
fault_if(2 not in done, "the second copy is never done, and its pages stay held")
