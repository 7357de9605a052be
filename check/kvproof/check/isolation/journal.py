"""The journal: the run that a search is in, in memory that two processes share.

The searching process writes an operation before it does it, so whatever happens to that process then, the other one
knows the configuration and the operations, the last of which did not end. It also sees whether the search advances.
"""

import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Iterable
from typing import SupportsIndex

import msgspec

from kvproof.check.counterexample.trace_schema import frozen
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.protocol.manager import Config
from kvproof.spec.trace import Operation

SIZE_BYTES = 1 << 22  # a run of 80 operations takes a few thousand
HEADER = struct.Struct("=QQQ")  # runs begun, operations of all runs, where the run ends


class Journal:
    """One shared file. The parent makes it; the fork opens it by its descriptor."""

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = _shared_file()
            os.ftruncate(descriptor, SIZE_BYTES)
        self.descriptor = descriptor
        self.memory = mmap.mmap(descriptor, SIZE_BYTES)
        self._encoder = msgspec.msgpack.Encoder()
        self.num_runs = self.num_operations = 0
        self.end = HEADER.size

    # The searching side ---------------------------------------------------------------------------------------------

    def begin(self, config: Config) -> list[Operation]:
        """A run begins; the list that its operations go to."""
        self.num_runs += 1
        self.end = HEADER.size
        self._write(pack(config))
        return Journaled(self)

    def note(self, operation: Operation) -> None:
        """An operation is about to be done."""
        self.num_operations += 1
        self._write(operation)

    def _write(self, item: object) -> None:
        data = self._encoder.encode(item)
        end = self.end + 4 + len(data)
        if end > SIZE_BYTES:
            raise ValueError(f"a run is longer than {SIZE_BYTES:,} bytes of journal")
        self.memory[self.end : end] = len(data).to_bytes(4, "little") + data
        self.end = end
        HEADER.pack_into(self.memory, 0, self.num_runs, self.num_operations, end)

    # The other side -------------------------------------------------------------------------------------------------

    def look(self) -> tuple[int, int]:
        """Runs begun and operations noted so far."""
        runs, operations, _ = HEADER.unpack_from(self.memory, 0)
        return runs, operations

    def last_run(self) -> tuple[Config, list[Operation]] | None:
        """The run that was begun last, once the process that wrote it has ended; None if there is none."""
        runs, _, end = HEADER.unpack_from(self.memory, 0)
        if not runs:
            return None
        items, at = [], HEADER.size
        while at < end:
            size = int.from_bytes(self.memory[at : at + 4], "little")
            items.append(msgspec.msgpack.decode(self.memory[at + 4 : at + 4 + size]))
            at += 4 + size
        return unpack(items[0]), [frozen(item) for item in items[1:]]

    def close(self) -> None:
        """Give the memory back."""
        self.memory.close()
        os.close(self.descriptor)


def _shared_file() -> int:
    """The descriptor of a file without a name: of memory where there are such files, so that no disk can be full."""
    if sys.platform == "linux":
        return os.memfd_create("kvproof-journal")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Journaled(list[Operation]):
    """The operations of a run, noted as they come."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal

    def append(self, operation: Operation) -> None:
        """Note it, and keep it."""
        self.journal.note(operation)
        super().append(operation)

    def extend(self, operations: Iterable[Operation]) -> None:
        """Note each, and keep it."""
        for operation in operations:
            self.append(operation)

    def pop(self, index: SupportsIndex = -1) -> Operation:
        """It was not enabled: forget it here. In the journal it stays, since a replay passes over it."""
        return super().pop(index)
