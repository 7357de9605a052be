"""Random uses of kvproof's store of two tiers, in an order that moves of blocks do not have, with what must come back.

Keys are put and got; saves and loads are under way while others go on, while everything is written to the disk, and
while memory is emptied; the process ends and begins again, also in the middle of a write; bytes of the disk change.
The content of a key is a function of the key, so each content that comes back is known to be right or wrong. A key may
be missing only if both tiers had to give its slot to others, or if its place on the disk was damaged.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from kvproof.impl.kv_store import TieredStore
from kvproof.impl.kv_store.disk import CHECKSUM_BYTES, FILE, HEADER_BYTES, KEY_BYTES, MARK
from kvproof.impl.kv_store.memory import Buffer

SLOT_BYTES, NUM_HOST_SLOTS, NUM_DISK_SLOTS, NUM_KEYS = 48, 3, 6, 12
PLACE_BYTES = HEADER_BYTES + SLOT_BYTES
NUM_USES = 200
SIZES = NUM_HOST_SLOTS, NUM_DISK_SLOTS


class LostBlock(Exception):
    """The store does not have what was saved."""


class WrongContent(Exception):
    """The store has other bytes under a key than were saved."""


def content_of(key: bytes) -> bytes:
    """The bytes that are always saved under a key."""
    return hashlib.shake_128(key).digest(SLOT_BYTES)


def use_a_small_store(seed: int) -> None:
    """Use a store in a directory of its own. Raises LostBlock, WrongContent, and what the store raises."""
    with TemporaryDirectory() as folder:
        life = StoreLife(Path(folder), seed)
        try:
            life.run(NUM_USES)
        finally:
            life.store.close()


class StoreLife:
    """One store, its uses, and the keys that it must have: those used last, as many as each tier has slots for."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.random, self.numbers = directory, Random(seed), count()
        self.keys = self._new_keys(NUM_KEYS)
        self.staged: dict[bytes, int] = {}  # saves under way, with their slots
        self.held = Counter[bytes]()  # loads under way
        self.slot_of: dict[bytes, int] = {}  # of the loads under way
        self.damaged: set[bytes] = set()  # keys whose places on the disk were changed
        self.in_memory: list[bytes] = []  # keys that memory has, the one that was used last is the last
        self.on_disk: list[bytes] = []  # the same for the disk
        self._open()

    def _new_keys(self, number: int) -> list[bytes]:
        return [hashlib.sha256(b"%d" % next(self.numbers)).digest() for _ in range(number)]

    def _open(self) -> None:
        self.memory = Buffer(NUM_HOST_SLOTS, SLOT_BYTES)
        self.store = TieredStore(SLOT_BYTES, NUM_HOST_SLOTS, self.directory, NUM_DISK_SLOTS, memory=self.memory)

    def run(self, length: int) -> None:
        """So many uses."""
        uses = (self.put, self.put, self.get, self.save, self.end_save, self.load, self.end_load, self.flush)
        rare = (self.spill, self.restart, self.damage, self.fill)
        for _ in range(length):
            self.random.choice(rare if self.random.random() < 0.2 else uses)()
            self._judge()

    # ---- what must be there ----

    def _used(self, key: bytes) -> None:
        if key in self.in_memory:
            self.in_memory.remove(key)
        self.in_memory.append(key)

    def _used_on_disk(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if key in self.on_disk:
                self.on_disk.remove(key)
            self.on_disk.append(key)

    def _judge(self) -> None:
        """The keys that were used last are where they must be. The order in which a flush writes is not judged."""
        host, disk = self.store.host, self.store.disk
        gone = [key for key in self.in_memory if not host.has(key)]
        self._used_on_disk(gone)
        num_sure = NUM_HOST_SLOTS - len(self.staged)
        for key in self.in_memory[-num_sure:] if num_sure else ():
            if not host.has(key) and not self.held:
                raise LostBlock("memory gave the slot of a key that was used lately to another one")
        self.in_memory = [key for key in self.in_memory if host.has(key)]
        for key in self.on_disk[-(NUM_DISK_SLOTS - NUM_HOST_SLOTS + 1) :]:
            if key not in self.damaged and not disk.has(key):
                raise LostBlock("the disk does not have a key that memory gave up lately")
        self.on_disk = [key for key in self.on_disk if disk.has(key)]

    def _require(self, key: bytes, found: bytes | None, must_be_there: bool) -> None:
        if found is None and must_be_there:
            raise LostBlock("a key that the store has does not come back")
        if found is not None and found != content_of(key):
            raise WrongContent("a key comes back with other bytes than were saved under it")
        if found is None and self.store.has(key):
            raise LostBlock("a key of which nothing is left is looked for again and again")
        if found is None:
            self.damaged.discard(key)
            self.on_disk = [one for one in self.on_disk if one != key]

    # ---- uses ----

    def _key(self) -> bytes:
        return self.random.choice(self.keys)

    def put(self) -> None:
        """A key is kept whole, unless a save of it is under way."""
        key = self._key()
        if key not in self.staged and self.store.put(key, content_of(key)):
            self._used(key)

    def get(self) -> None:
        """A key is looked for and read."""
        key = self._key()
        must_be_there = self.store.has(key) and key not in self.damaged
        from_disk = not self.store.host.has(key)
        found = self.store.get(key)
        self._require(key, found, must_be_there)
        if from_disk and found is not None:
            self._used_on_disk([key])
        if self.store.host.has(key):
            self._used(key)

    def save(self) -> None:
        """A save begins: a slot of memory is to be written."""
        key = self._key()
        if key in self.staged:
            return
        if self.store.is_in_memory(key):
            self._used(key)
            return
        slot = self.store.place(key)
        if slot is not None:
            self.staged[key] = slot

    def end_save(self) -> None:
        """A save ends: its slot is written, or it is given up."""
        if not self.staged:
            return
        key = self.random.choice(list(self.staged))
        slot = self.staged.pop(key)
        if self.random.random() < 0.3:
            self.store.give_up([key])
            return
        self.memory.write(slot, content_of(key))
        self.store.keep([key])
        self._used(key)

    def load(self) -> None:
        """A load begins: it holds a slot of memory."""
        key = self._key()
        if key in self.staged:
            return
        must_be_there = self.store.has(key) and key not in self.damaged
        is_in_memory = self.store.host.has(key)
        slot = self.store.bring(key)
        if not is_in_memory and self.store.disk.has(key):
            self._used_on_disk([key])
        if slot is None:
            if must_be_there and len(self.staged) + len(self.held) < NUM_HOST_SLOTS:
                raise LostBlock("a key that the store has is not brought to memory")
            return
        self.held[key] += 1
        self.slot_of[key] = slot
        self._used(key)

    def end_load(self) -> None:
        """A load ends; the slot has the content of its key until then."""
        if not self.held:
            return
        key = self.random.choice(list(self.held))
        self._require(key, self.memory.read(self.slot_of[key]), True)
        self.held[key] -= 1
        self.held += Counter()  # without those that no load holds
        self.store.release([key])
        self._used(key)

    def flush(self) -> None:
        """What is in memory goes to the disk."""
        self.store.flush()
        self._used_on_disk([key for key in self.in_memory if self.store.host.has(key)])

    def spill(self) -> None:
        """The same, and memory is emptied, but for what is held or written."""
        self.flush()
        self.store.spill()
        for key in self.held:
            if not self.store.host.has(key):
                raise LostBlock("a slot that a load reads is given up")
        self.in_memory = [key for key in self.in_memory if self.store.host.has(key)]

    def _end_all(self) -> None:
        while self.held:
            self.end_load()
        while self.staged:
            self.end_save()

    def restart(self) -> None:
        """The process ends and begins again: what the disk has is there."""
        if self.random.random() < 0.5:
            self.flush()  # while saves are under way, of which nothing may be found then
        written = [key for key in self.keys if self.store.disk.has(key) and key not in self.staged]
        self.store.close()
        self.held.clear()
        self.staged.clear()
        self.in_memory = []
        self.on_disk = []
        self._open()
        for key in self.keys:
            must_be_there = key in written and key not in self.damaged
            if must_be_there and not self.store.has(key):
                raise LostBlock("a key that was on the disk is not there after a restart")

    def damage(self) -> None:
        """A place of the disk gets the first bytes of another one, as if a process had ended in the middle of a write.

        Or all of them, as if it had written the key there that it had elsewhere before.
        """
        file = self.directory / FILE
        places = bytearray(file.read_bytes())
        slots = range(len(places) // PLACE_BYTES)
        if len(slots) < 2:
            return
        begin, other = (slot * PLACE_BYTES for slot in self.random.sample(slots, 2))
        number = self.random.choice((PLACE_BYTES, self.random.randrange(1, PLACE_BYTES)))
        start = begin + len(MARK) + CHECKSUM_BYTES
        self.damaged.add(bytes(places[start : start + KEY_BYTES]))
        with file.open("r+b") as opened:
            opened.seek(begin)
            opened.write(places[other : other + number])

    def fill(self) -> None:
        """So many new keys as both tiers have slots: all are there."""
        self._end_all()
        self.restart()
        self.keys = self._new_keys(NUM_KEYS)
        self.damaged.clear()
        self.in_memory, self.on_disk = [], []
        newest = self.keys[: sum(SIZES)]
        for key in newest:
            self.store.put(key, content_of(key))
        if not all(self.store.has(key) for key in newest):
            raise LostBlock(f"a store of {sum(SIZES)} slots has fewer of {len(newest)} keys that were put one by one")
        self.in_memory = newest[-NUM_HOST_SLOTS:]
