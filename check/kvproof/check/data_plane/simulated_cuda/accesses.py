"""Find accesses to the same word of memory that nothing orders.

For each word of 8 bytes, the last write and the last read of each actor are kept, as serials of operations. A new
access is compared with them: what its clock does not include is not ordered before it. Because work that is ordered
runs in that order, each pair of unordered accesses is found when the second one runs. What is older than the last
moment at which the host waited for everything is ordered, and needs no clock.

Source: Flanagan and Freund, FastTrack: Efficient and Precise Dynamic Race Detection, PLDI 2009.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.simulated_cuda.order import Host, Operation

WORD_BYTES = 8
Words = NDArray[np.int64] | slice


def words_of(tensor: torch.Tensor) -> Words:
    """The words of its storage that a tensor in main memory covers: a slice if its elements lie side by side."""
    size = tensor.element_size()
    first = tensor.data_ptr() - tensor.untyped_storage().data_ptr()
    places, run = np.array([first], np.int64), size
    for length, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda pair: pair[1]):
        if not length:
            return slice(0, 0)
        if len(places) == 1 and stride * size == run:
            run *= length  # these elements lie side by side
        elif stride:
            places = (places[:, None] + np.arange(length) * stride * size).ravel()
    if len(places) == 1:
        return slice(first // WORD_BYTES, (first + run - 1) // WORD_BYTES + 1)
    span = np.arange(0, run + WORD_BYTES - 1, WORD_BYTES)
    last = (places + run - 1) // WORD_BYTES
    words: NDArray[np.int64] = np.minimum(places[:, None] // WORD_BYTES + span // WORD_BYTES, last[:, None]).ravel()
    return words


def words_of_rows(tensor: torch.Tensor, rows: NDArray[np.int64]) -> Words:
    """The words that some rows of the first dimension cover. rows: at least 0."""
    if not len(rows) or not tensor.numel():
        return slice(0, 0)
    stride = tensor.stride(0) * tensor.element_size()
    if stride % WORD_BYTES:  # neighbours share words
        return np.unique(np.concatenate([np.r_[words_of(tensor[row])] for row in np.unique(rows).tolist()]))
    words: NDArray[np.int64] = (rows[:, None] * (stride // WORD_BYTES) + np.r_[words_of(tensor[0])]).ravel()
    return words


@dataclass(frozen=True)
class UnorderedAccesses:
    """Two accesses that nothing orders. One of them writes."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"nothing orders {self.first} and {self.second}, and they use the same memory"


@dataclass
class _Shadow:
    """The last accesses to each word of one storage, as serials of operations; 0 if there is none.

    written: by any actor. read: by each actor since the host last waited for everything, at the serial `settled`.
    """

    written: NDArray[np.int64]
    read: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    settled: int = 0


class Accesses:
    """All accesses to the memory of a simulated device, and to page-locked memory of the host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.races: list[UnorderedAccesses] = []
        self._shadows: dict[int, _Shadow] = {}
        self._known: dict[int, tuple[int, str]] = {}  # actor and name of the operations that are not settled
        self._settled = 0

    def follow(self, memory: torch.Tensor) -> None:
        """Follow the storage of this tensor from now on, as long as it lives."""
        storage = memory.untyped_storage()
        key = storage.data_ptr()
        if not key or key in self._shadows:
            return
        self._shadows[key] = _Shadow(np.zeros(-(-storage.nbytes() // WORD_BYTES), np.int64))
        weakref.finalize(storage, self._shadows.pop, key, None)

    def follows(self, memory: torch.Tensor) -> bool:
        """Whether accesses to the memory of this tensor are compared."""
        return memory.untyped_storage().data_ptr() in self._shadows

    def read(self, operation: Operation, memory: torch.Tensor, rows: NDArray[np.int64] | None = None) -> None:
        """Work has read this memory; if rows are given, only these rows of its first dimension."""
        if (shadow := self._shadow(memory)) is not None:
            words = words_of(memory) if rows is None else words_of_rows(memory, rows)
            self._compare(operation, shadow.written[words])
            if operation.actor not in shadow.read:
                shadow.read[operation.actor] = np.zeros(len(shadow.written), np.int64)
            shadow.read[operation.actor][words] = operation.serial
            self._known[operation.serial] = operation.actor, operation.name

    def write(self, operation: Operation, memory: torch.Tensor, rows: NDArray[np.int64] | None = None) -> None:
        """Work has written this memory; if rows are given, only these rows of its first dimension."""
        if (shadow := self._shadow(memory)) is not None:
            words = words_of(memory) if rows is None else words_of_rows(memory, rows)
            self._compare(operation, shadow.written[words])
            for serials in shadow.read.values():
                self._compare(operation, serials[words])
                serials[words] = 0
            shadow.written[words] = operation.serial
            self._known[operation.serial] = operation.actor, operation.name

    def _shadow(self, memory: torch.Tensor) -> _Shadow | None:
        """What is known of this memory, without the reads that everything is ordered after."""
        shadow, settled = self._shadows.get(memory.untyped_storage().data_ptr()), self.host.settled
        if settled != self._settled:
            self._known.clear()
            self._settled = settled
        if shadow is not None and shadow.settled != settled:
            shadow.read.clear()
            shadow.settled = settled
        return shadow

    def _compare(self, operation: Operation, serials: NDArray[np.int64]) -> None:
        """Report the first earlier access that is not ordered before this operation."""
        last = int(serials.max(initial=0))
        if last < self._settled or (last == serials.min() and self._is_ordered(last, operation)):
            return
        known = np.unique(serials[serials >= self._settled])
        if unordered := [one for one in known.tolist() if not self._is_ordered(one, operation)]:
            actor, name = self._known[int(serials[np.isin(serials, unordered)][0])]
            self.races.append(UnorderedAccesses(self._text(actor, name), self._text(operation.actor, operation.name)))

    def _is_ordered(self, serial: int, operation: Operation) -> bool:
        return operation.is_after(self._known[serial][0], serial)

    def _text(self, actor: int, name: str) -> str:
        return f"{name} on {self.host.name_of(actor)}"
