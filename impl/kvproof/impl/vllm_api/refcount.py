"""Reference counts of blocks, and the copies that writing to a shared block asks for.

A `RefCounter` has counts of its own, or shows those of a `DeviceBlocks`: then a count exists once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping, MutableSequence
from typing import Protocol

from ..errors import DoubleFreeError, InvalidValueError, ReadOnlyError, UnknownBlockError

Counts = MutableMapping[int, int] | MutableSequence[int]


class HasBlockId(Protocol):
    """A block, as far as counting goes."""

    @property
    def block_id(self) -> int | None: ...


class RefCounter:
    """Counts references for a fixed set of block ids."""

    def __init__(self, all_block_indices: Iterable[int], counts: list[int] | None = None) -> None:
        self._ids: Collection[int] = (
            all_block_indices if isinstance(all_block_indices, range) else frozenset(all_block_indices)
        )
        self._counts: Counts = dict.fromkeys(self._ids, 0) if counts is None else counts

    def incr(self, block_id: int) -> int:
        """One reference more; returns the new count."""
        count = self.get(block_id) + 1
        self._counts[block_id] = count
        return count

    def decr(self, block_id: int) -> int:
        """One reference less; returns the new count. Never below 0."""
        count = self.get(block_id)
        if count == 0:
            raise DoubleFreeError(block_id)
        self._counts[block_id] = count - 1
        return count - 1

    def get(self, block_id: int) -> int:
        """The references held on a block."""
        if block_id not in self._ids:
            raise UnknownBlockError(block_id, "this counter")
        return self._counts[block_id]

    @property
    def _refcounts(self) -> dict[int, int]:
        return {block_id: self._counts[block_id] for block_id in self._ids}  # by the name it has in V0

    def as_readonly(self) -> ReadOnlyRefCounter:
        """A view that follows the counts and cannot change them."""
        return ReadOnlyRefCounter(self)


class ReadOnlyRefCounter:
    """Counts to look at."""

    def __init__(self, refcounter: RefCounter) -> None:
        self._refcounter = refcounter

    def get(self, block_id: int) -> int:
        """The references held on a block."""
        return self._refcounter.get(block_id)

    def incr(self, block_id: int) -> int:
        """Refused."""
        raise ReadOnlyError(f"the refcount of block {block_id}")

    def decr(self, block_id: int) -> int:
        """Refused."""
        raise ReadOnlyError(f"the refcount of block {block_id}")


class CopyOnWriteTracker:
    """Which blocks may be written in place, and which copies are to be made."""

    def __init__(self, refcounter: RefCounter | ReadOnlyRefCounter) -> None:
        self._refcounter = refcounter
        self._copies: list[tuple[int, int]] = []

    def is_appendable(self, block: HasBlockId) -> bool:
        """Nobody else holds the block; a block without an id is nobody's yet."""
        return block.block_id is None or self._refcounter.get(block.block_id) <= 1

    def record_cow(self, src_block_id: int | None, trg_block_id: int | None) -> None:
        """Remember a copy to make."""
        if src_block_id is None or trg_block_id is None:
            raise InvalidValueError("copy", (src_block_id, trg_block_id), "it needs two block ids")
        self._copies.append((src_block_id, trg_block_id))

    def clear_cows(self) -> list[tuple[int, int]]:
        """The copies to make, in the order in which they were recorded; they are forgotten here."""
        copies, self._copies = self._copies, []
        return copies
