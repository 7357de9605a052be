"""SGLang 0.5.5: a prefetch gives the host pages that it did not fill back twice (issue 13483).

Four pages are prefetched from the storage to host memory, and the storage gives two of them. `_page_transfer` gives the
slots of the other two back, and so does its caller, the thread `prefetch_io_aux_func`. The free list of the host pool
then names them twice, and two later prefetches write to the same pages. Repaired in 0.5.6. Run it with the SGLang that
is to be tried: exit code 1 if the fault is there.
"""

import threading
from collections import Counter
from queue import Empty, SimpleQueue
from typing import Any

import torch
from on_any_engine import StandIn, fault_if
from sglang.srt.managers.cache_controller import HiCacheController, PrefetchOperation

PAGE, NUM_PAGES, NUM_GIVEN = 2, 4, 2  # tokens of a page, pages of the prefetch, pages that the storage gives
stop = threading.Event()
operation = PrefetchOperation("request", torch.arange(NUM_PAGES * PAGE), list(range(NUM_PAGES * PAGE)))
operation.hash_value = [f"page {page}" for page in range(NUM_PAGES)]
prefetches = [operation]


def next_prefetch(block: bool = True, timeout: float | None = None) -> Any:
    """The prefetch; at the second call, the thread is asked to stop. Raises Empty."""
    if not prefetches:
        stop.set()
        raise Empty
    return prefetches.pop()


def fetch(operation: Any, hashes: list[str], *more: Any) -> None:
    """The storage gives the first pages only."""
    operation.increment(NUM_GIVEN * PAGE)


given_back: Any = SimpleQueue()
controller = HiCacheController.__new__(HiCacheController)
controller.__dict__.update(
    page_size=PAGE,
    storage_batch_size=128,
    has_draft=False,
    mem_pool_host=StandIn(page_size=PAGE),
    host_mem_release_queue=given_back,
    page_get_func=fetch,
    prefetch_buffer=StandIn(get=next_prefetch),
    stop_event=stop,
    storage_stop_event=stop,
)
controller.prefetch_io_aux_func()

pages = [int(given_back.get()[0]) // PAGE for _ in range(given_back.qsize())]
print(f"the storage gave {NUM_GIVEN} of {NUM_PAGES} pages; pages that came back: {pages}")
twice = [page for page, number in Counter(pages).items() if number > 1]
fault_if(twice, f"pages {twice} came back twice")
