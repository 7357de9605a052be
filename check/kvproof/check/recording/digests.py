"""Keyed digests, which stand for tokens, keys and salts in a recording: they show what is equal, and nothing else."""

import hashlib
from typing import Any

DIGEST_BYTES = 8
POSITIVE = (1 << 63) - 1


class KeyedDigests:
    """Digests with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key[:64]

    def of(self, data: bytes) -> bytes:
        """The digest of some bytes."""
        return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=self._key).digest()

    def number(self, data: bytes) -> int:
        """The digest as a number from 0 on."""
        return int.from_bytes(self.of(data), "big") & POSITIVE

    def text(self, value: Any) -> str:
        """The digest of a value. Digests are equal if and only if the values are; None has an empty digest."""
        return "" if value is None else self.of(repr(value).encode()).hex()
