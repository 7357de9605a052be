"""What the processes of a subject write: it is printed on standard error, up to a limit.

A subject may write gigabytes, terminal control sequences, or lines that a CI runner takes for commands. So its output
goes through a pipe. A thread empties the pipe, so that the subject never waits for it. It prints the beginning in
printable form, line by line, and at the end how much was left out, with the last lines.
"""

import os
import threading
from contextlib import suppress

from kvproof.reports.printable import printable

CHUNK_BYTES = 1 << 16
FIRST_BYTES = 1 << 14  # are printed as they come
LAST_BYTES = 1 << 10  # are printed at the end, of what was left out
END_SECONDS_MAX = 2.0  # to wait for the rest; a process that was left behind may hold the pipe open
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

    def begin(self) -> None:
        """Close our end for writing, and print what comes."""
        os.close(self.descriptor)
        self._thread.start()

    def end(self) -> None:
        """Wait until everything is printed."""
        self._thread.join(END_SECONDS_MAX)

    def _print_all(self) -> None:
        num_first, line, last = FIRST_BYTES if self.is_printed else 0, b"", b""
        with suppress(OSError):
            while chunk := os.read(self._source, CHUNK_BYTES):
                num_free = max(0, num_first - self.num_bytes)
                self.num_bytes += len(chunk)
                whole, newline, line = (line + chunk[:num_free]).rpartition(b"\n")
                _print(whole + newline)
                last = (last + chunk)[-LAST_BYTES:]
                self.last = last.decode("utf-8", "backslashreplace")
        if line:
            _print(line + b"\n")
        num_left_out = self.num_bytes - num_first
        if self.is_printed and num_left_out > 0:
            last = last[-num_left_out:]
            what = f"kvproof: the subject wrote {self.num_bytes:,} bytes; {num_left_out:,} of them are left out before"
            _print(f"{what} the last {len(last):,}:\n".encode() + last + b"\n")
        os.close(self._source)


def _print(data: bytes) -> None:
    text = printable(data.decode("utf-8", "backslashreplace")).encode()
    with suppress(OSError):  # then nobody reads it
        while text:
            text = text[os.write(STANDARD_ERROR, text) :]
