"""A time limit for a subject in this process: a call that does not return in time becomes a finding.

An interval timer interrupts Python code in the main thread. It cannot interrupt code that never returns to the
interpreter, nor other threads. There the command hangs; run the subject in its own process to end it in time.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kvproof.check.protocol.finding import Finding


class Expired(BaseException):
    """Time is up. A BaseException, so that an `except Exception` of the subject does not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[Callable[[], None]]:
    """Raise a Finding inside the `with` block if it takes longer than `seconds`. No limit outside the main thread.

    Gives a function that starts the time again, for a block that does many things one after another.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield lambda: None
        return

    def expired(number: int, frame: FrameType | None) -> None:
        raise Expired

    def start() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, expired)
    start()
    try:
        yield start
    except Expired:
        raise Finding("total-calls", f"no answer within {seconds:.0f} s", "hang") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
