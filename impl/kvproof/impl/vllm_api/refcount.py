"""Reference counts of blocks, and the copies that a write to a shared block needs.

A `RefCounter` has counts of its own, or it is a view of those of a `DeviceBlocks`, so that each count exists once.

Source: vLLM 0.9, vllm/core/block/common.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping, MutableSequence
from typing import Protocol

from ..errors import DoubleFreeError, InvalidValueError, ReadOnlyError, UnknownBlockError

Counts = MutableMapping[int, int] | MutableSequence[int]


class HasBlockId(Protocol):
    """The part of a block that counting needs."""

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
        """Add a reference; returns the new count. Raises UnknownBlockError."""
        count = self.get(block_id) + 1
        self._counts[block_id] = count
        return count

    def decr(self, block_id: int) -> int:
        """Remove a reference; returns the new count. Raises DoubleFreeError at 0, and UnknownBlockError."""
        count = self.get(block_id)
        if count == 0:
            raise DoubleFreeError(block_id)
        self._counts[block_id] = count - 1
        return count - 1

    def get(self, block_id: int) -> int:
        """Number of references to a block. Raises UnknownBlockError."""
        if block_id not in self._ids:
            raise UnknownBlockError(block_id, "this counter")
        return self._counts[block_id]

    @property
    def _refcounts(self) -> dict[int, int]:
        return {block_id: self._counts[block_id] for block_id in self._ids}  # the name that it has in V0

    def as_readonly(self) -> ReadOnlyRefCounter:
        """Return a view of the counts that cannot change them."""
        return ReadOnlyRefCounter(self)


class ReadOnlyRefCounter:
    """A view of reference counts; its mutators raise ReadOnlyError."""

    def __init__(self, refcounter: RefCounter) -> None:
        self._refcounter = refcounter

    def get(self, block_id: int) -> int:
        """Number of references to a block. Raises UnknownBlockError."""
        return self._refcounter.get(block_id)

    def incr(self, block_id: int) -> int:
        """Raises ReadOnlyError."""
        raise ReadOnlyError(f"the refcount of block {block_id}")

    def decr(self, block_id: int) -> int:
        """Raises ReadOnlyError."""
        raise ReadOnlyError(f"the refcount of block {block_id}")


class CopyOnWriteTracker:
    """Decides which blocks may be written in place, and records the copies to make for the others."""

    def __init__(self, refcounter: RefCounter | ReadOnlyRefCounter) -> None:
        self._refcounter = refcounter
        self._copies: list[tuple[int, int]] = []

    def is_appendable(self, block: HasBlockId) -> bool:
        """Whether the block may be written in place: it has at most one reference, or no id yet."""
        return block.block_id is None or self._refcounter.get(block.block_id) <= 1

    def record_cow(self, src_block_id: int | None, trg_block_id: int | None) -> None:
        """Record a copy to make. Raises InvalidValueError if an id is missing."""
        if src_block_id is None or trg_block_id is None:
            raise InvalidValueError("copy", (src_block_id, trg_block_id), "a copy needs two block ids")
        self._copies.append((src_block_id, trg_block_id))

    def clear_cows(self) -> list[tuple[int, int]]:
        """Return the copies (source id, target id) in the order in which they were recorded, and forget them."""
        copies, self._copies = self._copies, []
        return copies
