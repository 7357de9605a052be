"""The limits of a subject: a call that does not return in time becomes a finding, as one that takes the memory does.

A limit must not depend on what else the machine does. So the time in which a process waits for a processor does not
count (`Patience`): on a busy machine a slow call takes longer, and is not taken for one that hangs. The threads of the
process and the processes that it started count as the process itself, because they may do its work: a program is often
started by a shell. Where the system does not report that time, all time counts.

In this process (`time_limit`) an interval timer interrupts Python code in the main thread. It cannot interrupt code
that never returns to the interpreter, nor other threads. There the command hangs; run the subject in its own process to
end it in time.

A subject in another process has a limit for each call. No second clock watches several of its calls together, because a
slow subject is not wrong (`time_limit_of`). Only the end of the run ends them (`calls_end_at`), and that says nothing
about the subject. A search in that process is interrupted in the call that is under way some time after its end
(`calls_interrupted_after`), so that what it has reached by then is kept.
"""

import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic
from types import CodeType, FrameType
from typing import Any

from kvproof.check.protocol.adapter_fault import places_of
from kvproof.check.protocol.finding import Finding
from kvproof.spec.trace import NO_ANSWER

LOAD_MAX = 30.0  # a limit never lasts longer than so many times its seconds
AGAIN_SECONDS_MIN = 0.01
SAMPLE_SECONDS = 1.0
SAMPLES_MAX = 64
TASKS_MAX = 1_000  # threads of a process and its descendants that are asked

GIB = 1 << 30
CALL_SECONDS_MAX = 3.0
CALL_SECONDS_MIN = 0.5  # with a small budget; more than a slow call takes
START_SECONDS_MAX = 60.0  # to import an engine
MEMORY_BYTES_MAX = 2 * GIB


class Patience:
    """A time limit for what a process does. pid: its process id; None stands for this process."""

    def __init__(self, seconds: float, pid: int | None = None) -> None:
        self.seconds = seconds
        self._pid = os.getpid() if pid is None else pid
        self.start()

    def start(self) -> None:
        """Start the time again."""
        self._began = monotonic()
        self._waited = _recent_wait(self._pid, self._began)

    def left(self) -> float:
        """The least number of seconds that are left; 0 or less if the time is over."""
        elapsed = monotonic() - self._began
        if elapsed < self.seconds:
            return self.seconds - elapsed
        waited = max(0.0, _wait_of(self._pid) - self._waited)
        return min(self.seconds - (elapsed - min(waited, elapsed)), self.seconds * LOAD_MAX - elapsed)


_samples: dict[int, tuple[float, float]] = {}  # by process id: when `_wait_of` was asked, and its answer


def _recent_wait(pid: int, now: float) -> float:
    """As `_wait_of`, at most SAMPLE_SECONDS ago: a limit is started more often than the system can be asked."""
    asked_at, waited = _samples.get(pid, (-SAMPLE_SECONDS, 0.0))
    if now - asked_at >= SAMPLE_SECONDS:
        if len(_samples) >= SAMPLES_MAX:
            _samples.clear()
        waited = _wait_of(pid)
        _samples[pid] = now, waited
    return waited


def _wait_of(pid: int) -> float:
    """How many seconds a process has waited for a processor since it began; 0 if the system does not report it.

    The sum over its threads and its descendants. Source: Linux, Documentation/scheduler/sched-stats.rst: the second
    number, in nanoseconds; proc(5), /proc/pid/task/tid/children.
    """
    waited, left, num_tasks = 0, [str(pid)], 0
    while left and num_tasks < TASKS_MAX:
        process = f"/proc/{left.pop()}/task"
        for task in _names(process):
            num_tasks += 1
            waited += int(_words(f"{process}/{task}/schedstat", "0 0 0")[1])
            left += _words(f"{process}/{task}/children")
    return waited / 1e9


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the process has ended
        return []


def _words(file: str, without: str = "") -> list[str]:
    """The words of a file of the system, or these words without the file."""
    try:
        with open(file, "rb", buffering=0) as opened:
            return opened.read().decode().split()
    except OSError:
        return without.split()


class Expired(BaseException):
    """Time is up. A BaseException, so that an `except Exception` of the subject does not catch it."""


@contextmanager
def time_limit(seconds: float, num_done: Callable[[], int] = lambda: 0) -> Iterator[Callable[[], None]]:
    """Raise a Finding inside the `with` block if it takes longer than `seconds`. No limit outside the main thread.

    Gives a function that starts the time again, for a block that does many things one after another. num_done: how many
    of them are done; the time also starts again if that has changed since the last look. Raises OutOfTime at the end of
    the run (`calls_end_at`).
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield lambda: None
        return
    patience, seen = Patience(seconds), num_done()

    def expired(number: int, frame: FrameType | None) -> None:
        nonlocal seen  # by the last look
        require_time()
        if (now := num_done()) != seen:
            seen = now
            patience.start()
        if (left := patience.left()) <= 0:
            raise Expired
        look_after(left)

    def look_after(left: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, max(AGAIN_SECONDS_MIN, min(left, seconds_left())))

    def start() -> None:
        patience.start()
        look_after(seconds)

    before = signal.signal(signal.SIGALRM, expired)
    look_after(seconds)
    try:
        yield start
    except Expired as error:
        text = f"{NO_ANSWER} {seconds:g} s"
        raise Finding("total-calls", text, "hang", frames=places_of(error)) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def time_limit_of(
    subject: Any, seconds: float, num_done: Callable[[], int] = lambda: 0
) -> AbstractContextManager[Callable[[], None]]:
    """As `time_limit`; without a limit if each call of the subject has one of its own (`limits_its_calls`)."""
    if _parent_watches or getattr(subject, "limits_its_calls", False):
        return nullcontext(_do_nothing)
    return time_limit(call_seconds(seconds), num_done)


def _do_nothing() -> None:
    """Start no time again, where there is no limit."""


_parent_watches = False


def leave_time_to_parent() -> None:
    """In the process of a subject: the process that asks for calls and searches watches their time."""
    global _parent_watches
    _parent_watches = True


# Shorter limits ---------------------------------------------------------------------------------------------------

HANG_SECONDS = 0.25  # where a call is known to hang, or is taken for one that does until that is confirmed
_call_seconds: ContextVar[float] = ContextVar("call_seconds", default=inf)


@contextmanager
def calls_take_at_most(seconds: float) -> Iterator[None]:
    """Within the block, a call that takes longer is taken for one that hangs, also where its limit is longer."""
    token = _call_seconds.set(seconds)
    try:
        yield
    finally:
        _call_seconds.reset(token)


def call_seconds(usual: float) -> float:
    """The time limit of a call that has this one otherwise."""
    return min(usual, _call_seconds.get())


# The end of a run -------------------------------------------------------------------------------------------------


class OutOfTime(BaseException):
    """The time of a run, or of a part of it, is over. It says nothing about the subject."""


_calls_end: ContextVar[float] = ContextVar("calls_end", default=inf)


@contextmanager
def calls_end_at(deadline: float) -> Iterator[None]:
    """Within the block, a call of another process raises OutOfTime when `time.monotonic` reaches the deadline."""
    token = _calls_end.set(min(deadline, _calls_end.get()))
    try:
        yield
    finally:
        _calls_end.reset(token)


GRACE_SECONDS = 1.5  # for a search to end by itself, between two operations


def search_ends_after(seconds: float) -> AbstractContextManager[None]:
    """As `calls_end_at`, for a search that should end by itself after so many seconds."""
    return calls_end_at(monotonic() + seconds + GRACE_SECONDS)


INTERRUPT_SECONDS = 0.5  # after the end of a search, and between two attempts; less than GRACE_SECONDS


@contextmanager
def calls_interrupted_after(seconds: float, call: CodeType) -> Iterator[None]:
    """Within the block, raise OutOfTime in Python code that is under way soon after so many seconds.

    Nothing is raised but in a function with this code, or in what it calls: elsewhere it could be lost, or leave counts
    half done.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is call:
                raise OutOfTime
            frame = frame.f_back

    if seconds == inf or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds + INTERRUPT_SECONDS, INTERRUPT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds_left() -> float:
    """The seconds until calls of another process end; infinite without a deadline, less than 0 after it."""
    return _calls_end.get() - monotonic()


def require_time() -> None:
    """Raise OutOfTime if calls of another process have ended."""
    if seconds_left() <= 0:
        raise OutOfTime


@dataclass(frozen=True)
class Limits:
    """call_seconds: for one call. start_seconds: to create the subject. memory_bytes: address space that a subject may
    use in addition to what it has after its creation; of a program behind a pipe, the main memory that it uses."""

    call_seconds: float = CALL_SECONDS_MAX
    memory_bytes: int = MEMORY_BYTES_MAX
    start_seconds: float = START_SECONDS_MAX

    @staticmethod
    def within(budget_seconds: float | None) -> "Limits":
        """Limits with which a hang is detected within the budget."""
        if budget_seconds is None:
            return Limits()
        return Limits(call_seconds=min(CALL_SECONDS_MAX, max(CALL_SECONDS_MIN, budget_seconds / 4)))


def limit_memory(more_bytes: int) -> None:
    """Limit the address space of this process to what it has now plus `more_bytes`."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return  # on a system without /proc only the time limit applies
    soft = pages * resource.getpagesize() + more_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
