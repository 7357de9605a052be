"""The journal: the current run of a search, in memory that two processes share.

The searching process writes each operation before it executes it. If that process dies or hangs, the other process
knows the configuration and the operations, the last of which did not return, and what the runs before it reached. It
can also see whether the search advances.

On a signal, a process that gives no answer writes its Python frames to its journal, also from C code. What it writes is
the word of the subject: it is shown to people and decides nothing.
"""

import faulthandler
import fcntl
import mmap
import os
import re
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, SupportsIndex

import msgspec

from kvproof.check.counterexample.trace_schema import CounterexampleError, frozen, require_run
from kvproof.check.hosts.channel import ChannelError
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.protocol.adapter_fault import NUM_FRAMES, STANDARD_LIBRARY, shown
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.own import OUR_CODE
from kvproof.spec.trace import CodePlace, Operation

SIZE_BYTES = 1 << 26  # a short run takes a few thousand, a long one with long prompts some millions
FRAMES_AT, FRAMES_BYTES = SIZE_BYTES, 1 << 16  # behind the run: the frames of a process that gives no answer
COUNT_PER_SECOND_MAX = 10_000_000  # operations, runs or states; the fastest search of a subject does a twentieth
HEADER = struct.Struct("=QQQ")  # number of runs, number of operations of all runs, end of the last run

WAIT_SECONDS_MAX, LOOK_SECONDS = 0.5, 0.01
FRAME = re.compile(rb'^  File "(.{1,500})", line (\d{1,9}) in (.{1,200})$', re.MULTILINE)


class Journal:
    """One shared file. The parent creates it; the fork opens it by its descriptor."""

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = _shared_file()
        self.descriptor = descriptor
        self.memory = mmap.mmap(descriptor, SIZE_BYTES)
        self._encoder = msgspec.msgpack.Encoder()
        self.began = time.monotonic()
        self.num_runs = self.num_operations = 0
        self.end = HEADER.size
        self._before: Any = None

    # The searching side ---------------------------------------------------------------------------------------------

    def begin(self, config: Config) -> list[Operation]:
        """Begin a run. Returns the list to which its operations must be appended."""
        self.num_runs += 1
        self.end = HEADER.size
        self._write(self._before, pack(config))
        return Journaled(self)

    def keep(self, done: Any) -> None:
        """Keep the result of the runs that are over; the next run is written with it."""
        self._before = pack(done)

    def note(self, operation: Operation) -> None:
        """Write an operation that is about to be executed."""
        self.num_operations += 1
        self._write(operation)

    def _write(self, *items: object) -> None:
        for item in items:
            data = self._encoder.encode(item)
            end = self.end + 4 + len(data)
            if end > SIZE_BYTES:
                raise ValueError(f"a run is longer than {SIZE_BYTES:,} bytes of journal")
            self.memory[self.end : end] = len(data).to_bytes(4, "little") + data
            self.end = end
        HEADER.pack_into(self.memory, 0, self.num_runs, self.num_operations, end)

    # The other side -------------------------------------------------------------------------------------------------

    @property
    def count_max(self) -> int:
        """No search has done more operations or runs since the journal was created."""
        return int(COUNT_PER_SECOND_MAX * (1 + time.monotonic() - self.began))

    def look(self) -> tuple[int, int]:
        """The number of runs, and the number of operations of all runs, so far; 0 if the subject wrote over them."""
        runs, operations, _ = HEADER.unpack_from(self.memory, 0)
        return (runs, operations) if max(runs, operations) <= self.count_max else (0, 0)

    def last_run(self) -> tuple[Config, list[Operation]] | None:
        """The last run; None if there is none, or if the subject wrote into it. The writing process must have ended."""
        try:
            config, *operations = self._items()[1:]
            config, operations = unpack(config), [frozen(item) for item in operations]
            require_run(config, operations)
            return config, operations
        except (ChannelError, CounterexampleError, ValueError, LookupError, TypeError, StopIteration, RecursionError):
            return None

    def done_before(self) -> Any:
        """What was kept of the runs before the last one; None if nothing was, or if the subject wrote into it."""
        try:
            return unpack(self._items()[0])
        except (ChannelError, ValueError, LookupError, RecursionError):
            return None

    def _items(self) -> list[Any]:
        """What is written of the last run. Raises ValueError if it cannot be read."""
        end = HEADER.unpack_from(self.memory, 0)[2] if self.look()[0] else 0
        items, at = list[Any](), HEADER.size
        while at < end:
            size = int.from_bytes(self.memory[at : at + 4], "little")
            items.append(msgspec.msgpack.decode(self.memory[at + 4 : at + 4 + size]))
            at += 4 + size
        return items

    def close(self) -> None:
        self.memory.close()
        os.close(self.descriptor)


def _shared_file() -> int:
    """The descriptor of an unnamed file; in memory if the system supports it, so that a full disk does not matter."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("kvproof-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, SIZE_BYTES + FRAMES_BYTES)
        # A subject that makes it smaller would end the process that reads it, by SIGBUS.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE_BYTES)
        return os.dup(file.fileno())


class Journaled(list[Operation]):
    """The operations of a run, which are written to the journal as they are appended."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal

    def append(self, operation: Operation) -> None:
        self.journal.note(operation)
        super().append(operation)

    def extend(self, operations: Iterable[Operation]) -> None:
        """Write the operations to the journal and append them."""
        for operation in operations:
            self.append(operation)

    def pop(self, index: SupportsIndex = -1) -> Operation:
        """Remove an operation that was not enabled. It stays in the journal; a replay skips it."""
        return super().pop(index)


def write_frames_on_signal(descriptor: int) -> None:
    """In the process of a subject: write the frames of its main thread to this journal when it gets the signal."""
    if sys.platform == "linux":
        os.lseek(descriptor, FRAMES_AT, os.SEEK_SET)
        faulthandler.register(signal.SIGUSR2, file=descriptor, all_threads=False)


def places_of_stuck(pid: int, descriptor: int) -> list[CodePlace]:
    """The last frames of the subject's code in the process, innermost last; empty if they cannot be known.

    A process that does not expect the signal may end by it.
    """
    if sys.platform != "linux":
        return []
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGUSR2)
    deadline, written = time.monotonic() + WAIT_SECONDS_MAX, b""
    while time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        before, written = written, os.pread(descriptor, FRAMES_BYTES, FRAMES_AT).rstrip(b"\0")
        if written and written == before:
            break
    return _places(written)


def _places(written: bytes) -> list[CodePlace]:
    """The places in a traceback of `faulthandler`, which begins with the innermost frame."""
    places = []
    for file, line, function in FRAME.findall(written):
        path = file.decode(errors="backslashreplace")
        is_judge = Path(path).is_relative_to(OUR_CODE) and not Path(path).is_relative_to(OUR_CODE / "subjects")
        if not is_judge and not path.startswith(("<", STANDARD_LIBRARY)):
            places.append(CodePlace(function.decode(errors="backslashreplace"), shown(path), int(line)))
    return places[:NUM_FRAMES][::-1]
