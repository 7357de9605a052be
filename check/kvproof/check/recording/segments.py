"""A recording that is read while it is written, on a bounded part of a disk.

A server that is watched for weeks would fill any disk with one file. So the recorder writes *segments* of a few MB one
after another (`recording.jsonl`, `recording.jsonl.1`, …), and the judge beside it removes each one that it has read. No
line crosses segments. Neither of the two waits for the other: if the judge is many segments behind, or was killed, the
recorder stops and the server goes on.

A file of a recording is locked for as long as lines may follow. The lock ends with its process, however that ends.
"""

import fcntl
import os
import stat
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from kvproof.check.recording.format import LINE_BYTES_MAX

SEGMENT_BYTES = 16 << 20
NUM_SEGMENTS_MAX = 64  # that are not judged yet
CHUNK_BYTES = 1 << 18


def lock(file: int) -> None:
    """Say that lines may follow. The lock ends when every copy of the descriptor is closed."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(file: int) -> bool:
    """Whether somebody else may write further lines to the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def wait_until_written(paths: Iterable[Path]) -> None:
    """Wait until nobody writes to these recordings any more."""
    for path in paths:
        with suppress(OSError), os.fdopen(opened_to_read(path), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def opened_to_read(path: Path) -> int:
    """The descriptor of a file that may be anybody's. Raises OSError for what is no file, which might never end."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is no file")
    return file


def segment_at(path: Path, number: int) -> Path:
    """The segment of a recording with this number, from 0 on."""
    return path.with_name(f"{path.name}.{number}") if number else path


def claimed(path: Path) -> Path:
    """Create an empty file of this name, or of the next number that is not taken, for its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = 1, path
    while True:
        try:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return name
        except FileExistsError:
            number += 1
            name = path.with_name(f"{path.stem}-{number}{path.suffix}")


class SegmentWriter:
    """Opens the next segment for a writer when the last one is full. locks: the writer has a lock on each segment."""

    def __init__(
        self,
        path: Path,
        num_bytes: int = SEGMENT_BYTES,
        num_segments_max: int = NUM_SEGMENTS_MAX,
        *,
        locks: bool = False,
    ) -> None:
        self._locks = locks
        self.path, self.num_bytes_max, self.num_segments_max = path, num_bytes, num_segments_max
        self.number = self.num_bytes = 0
        self.is_over = False

    def file_for(self, file: int, num_bytes: int) -> int:
        """The descriptor to which a line of so many bytes goes. file: the one of the line before; closed if it is full.

        Raises OSError if no further segment can be written. The line that says so may still go to the last one.
        """
        self.num_bytes += num_bytes
        if self.num_bytes <= self.num_bytes_max or self.is_over:
            return file
        self.is_over = True
        oldest = self.number + 1 - self.num_segments_max
        if oldest >= 0 and segment_at(self.path, oldest).exists():
            num_megabytes = self.num_segments_max * self.num_bytes_max >> 20
            raise OSError(f"the judge is {num_megabytes:,} MB behind: it is slower than the calls, or it hangs")
        if not self.path.parent.is_dir():
            raise OSError("the judge has ended")
        new = os.open(segment_at(self.path, self.number + 1), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if self._locks:
            lock(new)  # before the lock on the last one ends
        os.close(file)
        self.number, self.num_bytes, self.is_over = self.number + 1, num_bytes, False
        return new


class SegmentReader:
    """Reads the whole lines that are there, and removes each segment that it has read.

    keep: gets a copy of all bytes. keep_error: why the copy ended early, if it did. Raises OSError.
    """

    def __init__(self, path: Path, keep: IO[bytes] | None = None) -> None:
        self.path, self.keep, self.keep_error = path, keep, ""
        self.number = 0
        self.num_bytes_gone = 0  # of the segments before this one
        self.num_bytes_given = 0
        self.is_closed = False
        self._file = opened_to_read(path)
        self._lines: deque[bytes] = deque()
        self._begun = bytearray()  # of a line whose end is not there yet

    def readline(self, limit: int) -> bytes:
        """The next line; empty if no whole line is there yet. The first `limit` bytes of a line that is longer."""
        while not self._lines and len(self._begun) < limit and self._read():
            pass
        if not self._lines:
            return bytes(self._begun[:limit]) if len(self._begun) >= limit else b""
        line = self._lines.popleft()
        self.num_bytes_given += len(line)
        return line

    def has_line(self) -> bool:
        """Whether a whole line is there, or more of one than a recording has."""
        while not self._lines and len(self._begun) < LINE_BYTES_MAX and self._read():
            pass
        return bool(self._lines) or len(self._begun) >= LINE_BYTES_MAX

    def is_torn(self) -> bool:
        """Whether a line is there whose end is not."""
        return not self.has_line() and bool(self._begun)

    def has_writer(self) -> bool:
        """Whether a process beside the program still writes lines."""
        if self.is_closed:
            return False
        return is_locked(self._file) or segment_at(self.path, self.number + 1).exists()

    def discard(self) -> None:
        """Skip everything that is there."""
        self.stop_keeping()
        if self.is_closed:
            return
        self._lines.clear()
        self._begun = bytearray()
        self.num_bytes_given = self.num_bytes_gone + os.lseek(self._file, 0, os.SEEK_END)
        self._read()  # goes to the next segment, if there is one

    def num_bytes_left(self) -> int:
        """How many bytes were written and not given as lines yet. May be called from another thread."""
        number, total = self.number, self.num_bytes_gone - self.num_bytes_given
        with suppress(FileNotFoundError):
            while True:
                total += segment_at(self.path, number).stat().st_size
                number += 1
        return max(0, total)

    def stop_keeping(self) -> None:
        """Close the copy."""
        if self.keep is not None:
            self.keep.close()
            self.keep = None

    def close(self) -> None:
        """Close the files, and remove the segment that was read last. It may be called again."""
        self.stop_keeping()
        if self.is_closed:
            return
        self.is_closed = True
        os.close(self._file)
        segment_at(self.path, self.number).unlink(missing_ok=True)

    def _read(self) -> bool:
        """Read a part of the current segment, or go to the next one; False if there is nothing more to read now."""
        if self.is_closed:
            return False
        next_segment = segment_at(self.path, self.number + 1)
        is_whole = next_segment.exists()  # asked before the read, so that nothing is written after an empty one
        data = os.read(self._file, CHUNK_BYTES)
        if data:
            self._take(data)
            return True
        if is_whole:
            file = opened_to_read(next_segment)
            self.num_bytes_gone += os.fstat(self._file).st_size
            os.close(self._file)
            segment_at(self.path, self.number).unlink(missing_ok=True)
            self._file, self.number = file, self.number + 1
        return is_whole

    def _take(self, data: bytes) -> None:
        if self.keep is not None:
            try:
                self.keep.write(data)
            except OSError as error:
                self.keep_error = error.strerror or str(error)
                self.stop_keeping()
        *lines, begun = data.split(b"\n")
        if lines:
            self._lines.append(bytes(self._begun) + lines[0] + b"\n")
            self._lines.extend(line + b"\n" for line in lines[1:])
            self._begun = bytearray(begun)
        else:
            self._begun += begun
