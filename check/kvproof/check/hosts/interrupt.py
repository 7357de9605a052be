"""Ctrl-C and SIGTERM of the user, as opposed to a KeyboardInterrupt that the judged code raises.

Within `interruptible` both signals raise UserInterrupt. So where judged code runs in this process, its own
KeyboardInterrupt is a fault of that code, and does not end the run. Code that sends the signal to its own process
interrupts the run as the user does: nothing here says who sent a signal.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kvproof.check.hosts.time_limit import OutOfTime, seconds_left

SIGNALS = (signal.SIGINT, signal.SIGTERM)
AGAIN_SECONDS = 0.05
OURS = ("kvproof.", "hypothesis.")  # whose BaseExceptions are no answers of the code that they pass through
FAILED, SKIPPED = "Failed", "Skipped"  # of pytest; a plugin with a time limit raises the first one from a signal
_num_handlers = 0  # blocks of `interruptible` that are open


class UserInterrupt(KeyboardInterrupt):
    """The user interrupts the run by a signal."""


def is_from_outside(error: BaseException) -> bool:
    """Whether the user or the end of the run raised this, and not the code that was called.

    Outside of `interruptible` every KeyboardInterrupt counts as the user's.
    """
    if isinstance(error, OutOfTime):
        return seconds_left() <= 0
    return isinstance(error, UserInterrupt if _num_handlers else KeyboardInterrupt)


def is_answer(error: BaseException) -> bool:
    """Whether a call of judged code that raised this has failed: it is no interrupt, and no end of time or of a test.

    Any other BaseException of the code counts, such as that of a cancelled task, and that by which a test skips itself:
    a manager cannot end the run that judges it, nor excuse itself from a test.
    """
    if isinstance(error, Exception | SystemExit):
        return True
    kind = type(error)
    return not (is_from_outside(error) or kind.__module__.startswith(OURS) or kind.__name__ == FAILED)


def is_skip(error: BaseException) -> bool:
    """Whether a test skips itself: an adapter may do so when it makes its manager."""
    return type(error).__name__ == SKIPPED


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM, which CI systems send before they kill a job, interrupt like Ctrl-C. An ignored signal stays so.

    What the `__del__` of an object raises, Python only prints. So an interrupt that comes there comes again soon after,
    at the end of the block at the latest. Of an object that the interrupt left half made, nothing is printed, also
    after the block: the traceback of the interrupt keeps the object.
    """
    global _num_handlers
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    hook, last, again = sys.unraisablehook, 0, list[threading.Timer]()
    is_owed = is_over = False  # an interrupt came that did not interrupt yet; the block has ended

    def not_raised(ignored: "sys.UnraisableHookArgs") -> None:
        nonlocal is_owed
        if issubclass(ignored.exc_type, UserInterrupt):
            is_owed = True
            again.append(threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), last)))
            again[-1].start()
        elif ignored.exc_type is not AttributeError or getattr(ignored.object, "__name__", "") != "__del__":
            hook(ignored)

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last, is_owed
        last, sys.unraisablehook, is_owed = number, not_raised, is_over
        if not is_over:
            raise UserInterrupt

    numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    _num_handlers += 1
    has_interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        has_interrupted = True
        raise
    finally:
        is_over = True
        for timer in again:
            timer.cancel()
            timer.join()
        for number, handler in before.items():
            signal.signal(number, handler)
        _num_handlers -= 1
        if is_owed and not has_interrupted:
            raise UserInterrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait for the end of the block, where native code is imported that would abort."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: pending.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if pending:
        signal.raise_signal(pending[0])


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started in the block, and theirs, never get SIGINT, not even while they start.

    At a terminal Ctrl-C goes to all processes, and the one that started them ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def calling_at_sigterm(call: Callable[[], None]) -> Iterator[None]:
    """Within the block, SIGTERM calls this, and Ctrl-C does nothing: the terminal interrupts a program beside, too."""
    at_end = signal.signal(signal.SIGTERM, lambda number, frame: call())
    at_interrupt = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, at_end)
        signal.signal(signal.SIGINT, at_interrupt)


INTERRUPT, TERMINATE, HANG_UP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def leave_to_parent(*numbers: signal.Signals) -> None:
    """Ignore these signals in this process, which ends when its parent says so, or is over."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def end_this_process() -> None:
    """Send SIGTERM to this process."""
    os.kill(os.getpid(), signal.SIGTERM)
