"""The lines of vLLM's offloading manager, with hashes in place of digests."""

from functools import lru_cache
from typing import Any

from msgspec import field

from kvproof.check.recording.format import Header, KeyedDigests, RecordedCall
from kvproof.check.recording.handover import RawCall, RawLines

NUM_KNOWN_MAX = 1 << 16


class OffloadCall(RawCall, array_like=True, omit_defaults=True, gc=False):
    """A line with the hashes of blocks, some of which may be named twice.

    entries: the hash, the slot and the number of loads of each, if asked for.
    """

    keys: list[bytes] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)
    evicted: list[bytes] = field(default_factory=list)
    entries: list[tuple[bytes, int, int]] | None = None


class OffloadLines(RawLines):
    """Makes a digest of each hash."""

    kind = OffloadCall

    def __init__(self, header: Header, digests: KeyedDigests) -> None:
        super().__init__(header, digests)
        self._key = lru_cache(NUM_KNOWN_MAX)(digests.number)  # a digest takes longer than to find it

    def completed(self, raw: Any, data: bytes = b"") -> RecordedCall:
        """The line with the digests of its keys."""
        line = super().completed(raw)
        line.found, line.slots = raw.found, raw.slots
        line.keys, line.taken, line.evicted = (
            [self._key(name) for name in dict.fromkeys(names)] for names in (raw.keys, raw.taken, raw.evicted)
        )
        if raw.entries is not None:
            line.entries = [(self._key(name), slot, count) for name, slot, count in raw.entries]
        return line
