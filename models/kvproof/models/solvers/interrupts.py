"""Processes that do not get Ctrl-C: at a terminal it goes to all processes, and the one that started them ends them.

This file imports no solver, because `kvproof faults --of impl` uses it without one.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started in the block, and theirs, never get SIGINT, not even while they start."""
    resource_tracker.ensure_running()  # started later, it would end the effect of this block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
