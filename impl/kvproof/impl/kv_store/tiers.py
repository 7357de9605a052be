"""Host memory above a disk: what memory evicts goes to the disk, and what is found there comes back.

Memory's slots are places of one buffer. When a new key gets the slot of an evicted one, the old bytes are still in the
buffer, and nobody else may write there: they go to the disk first, and then the new ones are written. A read of the
disk checks the key and the checksum; content that does not fit them is dropped and counts as a miss.

The store belongs to one thread.
"""

from collections.abc import Iterable
from pathlib import Path

from kvproof.impl.kv_store.disk import KEY_BYTES, DiskSlots
from kvproof.impl.kv_store.memory import Buffer, SlotMemory
from kvproof.impl.kv_store.slots import NoSlotError, StoreSlots


class TieredStore:
    """KV by key, in host memory and in a directory. Every value has `slot_bytes` bytes.

    A directory of a former process is taken over: every key whose slot is whole is there again. memory: that of the
    host slots; None makes a buffer. Raises StoreFileError if the directory cannot be used, for example because another
    process uses it.
    """

    def __init__(
        self,
        slot_bytes: int,
        num_host_slots: int,
        directory: Path,
        num_disk_slots: int,
        is_synced: bool = False,
        memory: SlotMemory | None = None,
    ) -> None:
        self.slot_bytes = slot_bytes
        self.host: StoreSlots[bytes] = StoreSlots(num_host_slots)
        self.disk: StoreSlots[bytes] = StoreSlots(num_disk_slots)
        self._memory: SlotMemory = Buffer(num_host_slots, slot_bytes) if memory is None else memory
        if (self._memory.num_slots, self._memory.slot_bytes) != (num_host_slots, slot_bytes):
            raise ValueError(f"the memory must have {num_host_slots} slots of {slot_bytes} bytes")
        self._file = DiskSlots(directory, num_disk_slots, slot_bytes, is_synced)
        for slot, key in self._file.whole():
            if not self.disk.has(key):  # a key may be in two slots, with the same content
                self.disk.adopt(key, slot)

    def close(self) -> None:
        """Close the file. What is in memory alone is lost; `flush` writes it first."""
        self._file.close()

    def has(self, key: bytes) -> bool:
        """Whether the key is in a tier."""
        return self.host.has(key) or self.disk.has(key)

    def put(self, key: bytes, data: bytes) -> bool:
        """Keep the data of a key in memory. False if there is no slot for it. Raises ValueError for other sizes."""
        if len(data) != self.slot_bytes or len(key) != KEY_BYTES:
            sizes = f"{len(key)} and {len(data)}"
            raise ValueError(f"a key has {KEY_BYTES} bytes and a value {self.slot_bytes}, not {sizes}")
        if self.is_in_memory(key):
            return True
        slot = self.place(key)
        if slot is None:
            return False
        self._memory.write(slot, data)
        self.keep([key])
        return True

    def get(self, key: bytes) -> bytes | None:
        """The data of a key; None if no tier has it whole."""
        if self.host.has(key):
            (slot,) = self.host.hold([key])
            data = self._memory.read(slot)
            self.host.release([key])
            return data
        found = self._from_disk(key)
        if found is not None:
            self.put(key, found)
        return found

    def _from_disk(self, key: bytes) -> bytes | None:
        if not self.disk.has(key):
            return None
        (slot,) = self.disk.hold([key])
        found = self._file.read(slot, key)
        self.disk.release([key])
        if found is None:
            self.disk.drop(key)
        return found

    # For copies to and from the slots of memory ---------------------------------------------------------------------

    def is_in_memory(self, key: bytes) -> bool:
        """Whether memory has the key, which counts as a use of it."""
        self.host.touch([key])
        return self.host.has(key)

    def place(self, key: bytes) -> int | None:
        """The slot of memory to which the data of a key is to be written; None if there is none, or the key has one.

        What the slot had is on the disk when the call returns. `keep` or `give_up` ends the write.
        """
        if key in self.host.entries:  # memory has it, or a write of it has not ended
            return None
        try:
            staged = self.host.stage([key])
        except NoSlotError:
            return None
        (slot,) = staged.slots
        for evicted in staged.evicted:  # at most one, which had this slot
            self._to_disk(evicted, self._memory.read(slot))
        return slot

    def keep(self, keys: Iterable[bytes]) -> None:
        """The data of these keys is written."""
        self.host.commit(keys)

    def give_up(self, keys: Iterable[bytes]) -> None:
        """The data of these keys is not written."""
        self.host.abandon(keys)

    def bring(self, key: bytes) -> int | None:
        """The slot of memory that has the data of a key, until `release`; None if no tier has it whole, or no slot."""
        if not self.host.has(key):
            found = self._from_disk(key)
            if found is None or not self.put(key, found):
                return None
        return self.host.hold([key])[0]

    def release(self, keys: Iterable[bytes]) -> None:
        """The data of these keys was read."""
        self.host.release(keys)

    def flush(self) -> None:
        """Write what is in memory alone to the disk, the least recently used first."""
        for key, entry in list(self.host.entries.items()):
            if not entry.is_staged:
                self._to_disk(key, self._memory.read(entry.slot))

    def spill(self) -> None:
        """Write everything to the disk as `flush` does, and free the slots of memory that nobody holds."""
        self.flush()
        for key, entry in list(self.host.entries.items()):
            if not entry.is_staged and not entry.num_loads:
                self.host.drop(key)

    def _to_disk(self, key: bytes, data: bytes) -> None:
        """Write to the disk what it does not have. A disk that is full, or fails, has the key no more."""
        if self.disk.has(key):
            self.disk.touch([key])
            return
        try:
            staged = self.disk.stage([key])
        except NoSlotError:
            return
        try:
            self._file.write(staged.slots[0], key, data)
        except OSError:
            self.disk.abandon([key])
        else:
            self.disk.commit([key])
