"""What the processes of a subject write: it is printed on standard error, up to a limit.

A subject may write gigabytes, terminal control sequences, or lines that a CI runner takes for commands. So its output
goes through a pipe. A thread empties the pipe, so that the subject never waits for it. It prints the beginning in
printable form, line by line, and at the end how much was left out, with the last lines. A command asks for that before
it prints its verdict (`print_left_out`), so that the verdict comes last.
"""

import os
import select
import threading
import time
from contextlib import suppress
from weakref import WeakSet

from kvproof.check.hosts.program import BY_ITSELF_SECONDS
from kvproof.reports.printable import printable

CHUNK_BYTES = 1 << 16
FIRST_BYTES = 1 << 12  # are printed as they come
LAST_BYTES = 1 << 10  # are printed at the end, of what was left out
EMPTY_SECONDS_MAX = 0.5  # to wait until what was written is read
STANDARD_ERROR = 2


class SubjectOutput:
    """The output of the processes that inherit `descriptor` as their standard output and standard error.

    Call `begin` when the first of them is started, and `end` when all of them have ended. is_printed: whether anything
    is printed; `last` has the end of the output in any case.
    """

    def __init__(self, is_printed: bool = True) -> None:
        self.is_printed, self.last = is_printed, ""
        self._source, self.descriptor = os.pipe()
        self._thread = threading.Thread(target=self._print_all, name="output of the subject", daemon=True)
        self.num_bytes = 0
        self._num_first = FIRST_BYTES if is_printed else 0
        self._num_reported = self._num_first  # bytes that were printed, or reported as left out
        self._last, self._lock = b"", threading.Lock()

    def begin(self) -> None:
        """Close our end for writing, and print what comes."""
        os.close(self.descriptor)
        _OUTPUTS.add(self)
        self._thread.start()

    def end(self) -> None:
        """Wait until everything is printed."""
        self._thread.join(BY_ITSELF_SECONDS)  # a process that was left behind may hold the pipe open

    def _print_all(self) -> None:
        line, readable = b"", select.poll()
        readable.register(self._source, select.POLLIN)
        with suppress(OSError):
            while readable.poll():
                with self._lock:  # a caller that finds the pipe empty, and then gets the lock, sees all counted
                    chunk = os.read(self._source, CHUNK_BYTES)
                    if not chunk:
                        break
                    num_free = max(0, self._num_first - self.num_bytes)
                    whole, newline, line = (line + chunk[:num_free]).rpartition(b"\n")
                    _print(whole + newline)
                    if line and num_free <= len(chunk):  # nothing more of it is printed
                        _print(line + b"\n")
                        line = b""
                    self.num_bytes += len(chunk)
                    self._last = (self._last + chunk)[-LAST_BYTES:]
                    self.last = self._last.decode("utf-8", "backslashreplace")
        if line:
            _print(line + b"\n")
        self.print_left_out()
        _OUTPUTS.discard(self)
        os.close(self._source)

    def wait_until_read(self) -> None:
        """Wait until the thread has read what was written, for up to `EMPTY_SECONDS_MAX`."""
        end = time.monotonic() + EMPTY_SECONDS_MAX
        with suppress(OSError, ValueError):  # the thread has ended
            while select.select([self._source], [], [], 0)[0] and time.monotonic() < end:
                time.sleep(0.005)

    def print_left_out(self) -> None:
        """Print how much was left out since the last time, with its end; nothing if it is nothing."""
        with self._lock:
            num_left_out = self.num_bytes - self._num_reported
            if not self.is_printed or num_left_out <= 0:
                return
            self._num_reported = self.num_bytes
            last = self._last[-num_left_out:]
            what = f"kvproof: the subject wrote {self.num_bytes:,} bytes; {num_left_out:,} of them are left out before"
            _print(f"{what} the last {len(last):,}:\n".encode() + last + b"\n")


_OUTPUTS: WeakSet[SubjectOutput] = WeakSet()  # of processes that have not ended


def print_left_out() -> None:
    """Print how much of the output of every subject is left out, before a verdict is printed."""
    for output in [one for one in _OUTPUTS if one.is_printed]:
        output.wait_until_read()
        output.print_left_out()


def _print(data: bytes) -> None:
    text = printable(data.decode("utf-8", "backslashreplace")).encode()
    with suppress(OSError):  # then nobody reads it
        while text:
            text = text[os.write(STANDARD_ERROR, text) :]
