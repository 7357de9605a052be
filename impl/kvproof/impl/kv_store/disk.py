"""The bytes of the slots of a disk: one file in a directory, in which each slot has a place of fixed size.

A place has a header (a mark, the checksum, the key) and the data. A process can be killed in the middle of a write, so
a place may have a part of the new bytes and a part of the old ones. The checksum is over the key and the data
together: whichever parts were written, the place is either whole, with the old or the new content, or its checksum is
wrong and it counts as empty. So no order of the writes and no journal is needed. A write of a whole place takes one
system call, but nothing relies on it being atomic.

A kill of the process loses nothing that was written. Against a loss of power, open with `is_synced`: then a write
returns after the disk has it.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

FILE = "slots"
MARK = b"KVSLOT1\n"
KEY_BYTES, CHECKSUM_BYTES = 32, 16
HEADER_BYTES = len(MARK) + CHECKSUM_BYTES + KEY_BYTES


class DiskSlots:
    """The places of a directory. Keys have KEY_BYTES bytes, such as a SHA-256 of the content's identity."""

    def __init__(self, directory: Path, num_slots: int, slot_bytes: int, is_synced: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.num_slots, self.slot_bytes, self.is_synced = num_slots, slot_bytes, is_synced
        self.place_bytes = HEADER_BYTES + slot_bytes
        self._file = os.open(directory / FILE, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        os.close(self._file)

    def write(self, slot: int, key: bytes, data: bytes) -> None:
        """Write a key and its data to a slot. Raises OSError if the disk does not take all of it."""
        place = MARK + _checksum(key, data) + key + data
        if len(place) != self.place_bytes:
            raise ValueError(f"a slot has {KEY_BYTES} + {self.slot_bytes} bytes; given {len(key)} + {len(data)}")
        begin, done = slot * self.place_bytes, 0
        while done < len(place):
            done += os.pwrite(self._file, memoryview(place)[done:], begin + done)
        if self.is_synced:
            os.fdatasync(self._file)

    def read(self, slot: int, key: bytes) -> bytes | None:
        """The data of a slot; None if the slot does not have the whole content of this key."""
        found = self._whole(slot)
        return found[1] if found is not None and found[0] == key else None

    def whole(self) -> Iterator[tuple[int, bytes]]:
        """Each slot whose content is whole, and its key; for a directory that a former process has written."""
        for slot in range(self.num_slots):
            found = self._whole(slot)
            if found is not None:
                yield slot, found[0]

    def _whole(self, slot: int) -> tuple[bytes, bytes] | None:
        place = os.pread(self._file, self.place_bytes, slot * self.place_bytes)
        if len(place) != self.place_bytes or not place.startswith(MARK):
            return None
        checksum, rest = place[len(MARK) :][:CHECKSUM_BYTES], place[len(MARK) + CHECKSUM_BYTES :]
        key, data = rest[:KEY_BYTES], rest[KEY_BYTES:]
        return (key, data) if _checksum(key, data) == checksum else None


def _checksum(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(key + data, digest_size=CHECKSUM_BYTES).digest()
