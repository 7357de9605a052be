"""The bytes of the slots of a disk: one file in a directory, in which each slot has a place of fixed size.

A place has a header (a mark, the checksum, the key) and the data. A process can be killed in the middle of a write, so
a place may have a part of the new bytes and a part of the old ones. The checksum is over the key and the data
together: whichever parts were written, the place is either whole, with the old or the new content, or its checksum is
wrong and it counts as empty. So no order of the writes and no journal is needed. A write of a whole place takes one
system call, but nothing relies on it being atomic.

A kill of the process loses nothing that was written. Against a loss of power, open with `is_synced`: then a write
returns after the disk has it.

Nothing is written outside of the directory, and nothing that belongs to somebody else: the file must be a regular one
of this user, without another name, that nobody else can write to, and that holds a store or nothing. One process at a
time has it. A part that cannot be read counts as empty. The checksum is against accidents: who can write to the file
can choose what it holds.
"""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

FILE = "slots"
MARK = b"KVSLOT1\n"
KEY_BYTES, CHECKSUM_BYTES = 32, 16
HEADER_BYTES = len(MARK) + CHECKSUM_BYTES + KEY_BYTES
OPENING = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class StoreFileError(OSError):
    """The file of a store cannot be used; the message says which, and why."""


class DiskSlots:
    """The places of a directory. Keys have KEY_BYTES bytes, such as a SHA-256 of the content's identity.

    Raises StoreFileError if the directory or its file cannot be used.
    """

    def __init__(self, directory: Path, num_slots: int, slot_bytes: int, is_synced: bool = False) -> None:
        self.num_slots, self.slot_bytes, self.is_synced = num_slots, slot_bytes, is_synced
        self.place_bytes = HEADER_BYTES + slot_bytes
        path = directory / FILE
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, OPENING, 0o600)
        except OSError as error:
            reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise StoreFileError(f"{path} cannot be the file of a store: {reason}") from error
        if reason := self._refused():
            os.close(self._file)
            raise StoreFileError(f"{path} cannot be the file of a store: {reason}")

    def _refused(self) -> str:
        """Why the open file is not used; empty if it is."""
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            return "it is not a regular file"
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return "it belongs to another user, or others can write to it"
        if found.st_nlink > 1:
            return "it has another name, so other content may be in it"
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"another store uses it, in this process or another ({error.strerror})"
        if found.st_size and not any(self._may_be_place(slot) for slot in self._slots()):
            return "it holds something else; remove it, or choose another directory"
        return ""

    def _slots(self) -> range:
        """The slots whose places begin within the file."""
        return range(min(self.num_slots, -(-os.fstat(self._file).st_size // self.place_bytes)))

    def _may_be_place(self, slot: int) -> bool:
        """Whether a place of a store, or one that was never written, begins there."""
        begin = os.pread(self._file, len(MARK), slot * self.place_bytes)
        return MARK.startswith(begin) or not any(begin)

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
        for slot in self._slots():
            found = self._whole(slot)
            if found is not None:
                yield slot, found[0]

    def _whole(self, slot: int) -> tuple[bytes, bytes] | None:
        try:
            place = os.pread(self._file, self.place_bytes, slot * self.place_bytes)
        except OSError:  # the disk cannot read it
            return None
        if len(place) != self.place_bytes or not place.startswith(MARK):
            return None
        checksum, rest = place[len(MARK) :][:CHECKSUM_BYTES], place[len(MARK) + CHECKSUM_BYTES :]
        key, data = rest[:KEY_BYTES], rest[KEY_BYTES:]
        return (key, data) if _checksum(key, data) == checksum else None


def _checksum(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(key + data, digest_size=CHECKSUM_BYTES).digest()
