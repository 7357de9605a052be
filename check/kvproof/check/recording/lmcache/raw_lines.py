"""The lines of LMCache's L1 manager, with the fields of keys in place of digests, and addresses in place of slots.

An object has a slot from when the manager takes it from its memory until it is given back: `moves` has both, in order,
since the line before.
"""

from functools import lru_cache
from typing import Any

from msgspec import field

from kvproof.check.recording.format import Header, KeyedDigests, RecordedCall
from kvproof.check.recording.handover import RawCall, RawLines

NUM_OBJECTS_MAX = 1 << 16
Name = tuple[bytes, int, int, str, str]  # the hash, rank and group of a key, its model, its salt


class L1Call(RawCall, array_like=True, omit_defaults=True, gc=False):
    """A line with the keys of the call.

    at: nanoseconds of a clock at which the call began and ended. moves: whether objects were taken, and their
    addresses. answered: the keys of the answer, if they are not those of the call. has_succeeded: of each key of the
    answer; None if all have. addresses: of the objects of those that have; None if they are those that were taken last.
    is_gone: of each key of the answer, whether its object is gone. entries: the key, address and count of each, if
    asked for.
    """

    at: tuple[int, int] = (0, 0)
    keys: list[Name] = field(default_factory=list)
    moves: list[tuple[bool, list[int]]] = field(default_factory=list)
    has_succeeded: list[bool] | None = field(default_factory=list)
    addresses: list[int] | None = field(default_factory=list)
    num_seqs: int = 0
    answered: list[Name] | None = None
    is_gone: list[bool] = field(default_factory=list)
    entries: list[tuple[Name, int, int]] | None = None


class L1Lines(RawLines):
    """Follows the objects, and makes a digest of each key."""

    kind = L1Call

    def __init__(self, header: Header, digests: KeyedDigests) -> None:
        super().__init__(header, digests)
        self._slots: dict[int, int] = {}  # of the objects in use, by their addresses
        self._spare: list[int] = []
        self._key = lru_cache(NUM_OBJECTS_MAX)(self._number_of)  # a digest takes longer than to find it
        self._num_taken = self._num_slots_used = 0
        self._start: int | None = None  # when the first call began

    def completed(self, raw: Any, data: bytes = b"") -> RecordedCall:
        """The line with digests and slots."""
        line = super().completed(raw)
        start = self._start = raw.at[0] if self._start is None else self._start
        began, ended = raw.at
        line.at, line.num_seqs = ((began - start) // 1000, (ended - start) // 1000), raw.num_seqs
        for is_taken, addresses in raw.moves:
            (self._take if is_taken else self._give_back)(addresses)
        line.free = NUM_OBJECTS_MAX - self._num_taken, 0
        line.keys = [self._key(name) for name in raw.keys]
        answered = line.keys if raw.answered is None else [self._key(name) for name in raw.answered]
        if raw.has_succeeded is None:
            line.taken = answered[:]
        else:
            line.taken = [key for key, is_one in zip(answered, raw.has_succeeded, strict=False) if is_one]
        addresses = raw.moves[-1][1] if raw.addresses is None else raw.addresses
        line.slots = [self._slot(address) for address in addresses]
        line.evicted = [key for key, is_gone in zip(answered, raw.is_gone, strict=False) if is_gone]
        if raw.entries is not None:
            line.entries = [(self._key(name), self._slot(address), count) for name, address, count in raw.entries]
        return line

    def _take(self, addresses: list[int]) -> None:
        for address in addresses:
            self._num_taken += 1
            if address not in self._slots:
                self._slots[address] = self._spare.pop() if self._spare else self._new_slot()

    def _new_slot(self) -> int:
        if self._num_slots_used == NUM_OBJECTS_MAX:
            raise OverflowError(f"more than {NUM_OBJECTS_MAX:,} objects are in use at a time")
        self._num_slots_used += 1
        return self._num_slots_used - 1

    def _give_back(self, addresses: list[int]) -> None:
        for address in addresses:
            self._num_taken -= 1
            slot = self._slots.pop(address, None)
            if slot is not None:
                self._spare.append(slot)

    def _slot(self, address: int) -> int:
        """The slot of an object; -1 if its memory was given back."""
        return self._slots.get(address, -1)

    def _number_of(self, name: Name) -> int:
        chunk_hash, rank, group, model, salt = name
        return self.digests.number(b"%s@%d@%d" % (chunk_hash, rank, group) + f"{model}@{salt}".encode())
