"""A time limit for a subject in this process: a call that does not return becomes a finding.

An interval timer interrupts Python code in the main thread. Code that never returns to the interpreter, and other
threads, are out of its reach; the walker then hangs, and the whole command's own time limit has to end it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kvproof.check.protocol.finding import Finding


class Expired(BaseException):
    """Time is up. No subject's own `except Exception` may catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise a finding in the block if it takes longer than `seconds`."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def expired(number: int, frame: FrameType | None) -> None:
        raise Expired

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Expired:
        raise Finding("total-calls", f"no answer within {seconds:.0f} s", "hang") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
