"""SGLang 0.5.15.post1: a reset of HiCache does not wait for the thread that reads from the storage (PR 36882).

`reset` ends the threads of the storage and starts new ones, but it neither ends nor awaits the thread that copies pages
from the storage to the host. A copy that is under way goes on, into host memory that the reset has given back. When it
is done, the stop is over: the thread stays, one more with each reset, and takes work from the next one. In 0.5.20 the
reset waits for it. Run it with the SGLang that is to be tried: exit code 1 if the fault is there.
"""

import logging
import threading
from queue import Queue
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

from on_any_engine import StandIn, fault_if, nothing
from sglang.srt.managers import cache_controller

SECONDS_MAX = 10
cache_controller.threading, cache_controller.Queue = threading, Queue  # as SGLang has them; kvproof replaces them
logging.disable(logging.CRITICAL)
is_copying, may_end = Event(), Event()


def copy(operation: Any) -> None:
    """A copy that takes until the script lets it end."""
    is_copying.set()
    may_end.wait()


controller = cache_controller.HiCacheController.__new__(cache_controller.HiCacheController)
controller.__dict__.update(
    enable_storage=True,
    storage_stop_event=Event(),
    prefetch_tokens_occupied=0,
    _page_transfer=copy,
    append_host_mem_release=nothing,
    prefetch_sync_thread_func=nothing,
    **{name: list[Any]() for name in ("write_queue", "load_queue", "ack_write_queue", "ack_load_queue")},
)
controller._start_storage_threads()
end = monotonic() + SECONDS_MAX
while not hasattr(controller, "prefetch_buffer") and monotonic() < end:
    sleep(0.01)  # the thread that makes it has just been started
controller.prefetch_buffer.put(StandIn(request_id=1, host_indices=[], completed_tokens=0))
assert is_copying.wait(SECONDS_MAX), "the copy does not begin"
reset = Thread(target=controller.reset, daemon=True)
reset.start()
controller.storage_stop_event.wait(SECONDS_MAX)
reset.join(SECONDS_MAX)
is_over = not reset.is_alive()
print("the reset is over while a page is copied to the host:", is_over)
may_end.set()
reset.join(SECONDS_MAX)
fault_if(is_over, "the copy goes on into memory that the reset has given back")
