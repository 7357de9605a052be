"""Find accesses to the same word of memory that nothing orders.

For each word of 8 bytes, the last write and the last read of each actor are kept, as the numbers of their work. A new
access is compared with them: what its clock does not include is not ordered before it. Because work that is ordered
runs in that order, each pair of unordered accesses is found when the second one runs.

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


@dataclass(frozen=True)
class Race:
    """Two accesses that nothing orders. One of them writes."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"nothing orders {self.first} and {self.second}, and they use the same memory"


@dataclass
class _Shadow:
    """What is known of the words of one storage. writer: an actor, or -1. number: of its work."""

    writer: NDArray[np.int64]
    number: NDArray[np.int64]
    readers: dict[int, NDArray[np.int64]] = field(default_factory=dict)


class Accesses:
    """All accesses to the memory of a simulated device, and to page-locked memory of the host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.races: list[Race] = []
        self._shadows: dict[int, _Shadow] = {}
        self._names: dict[tuple[int, int], str] = {}

    def follow(self, memory: torch.Tensor) -> None:
        """Follow the storage of this tensor from now on, as long as it lives."""
        storage = memory.untyped_storage()
        key = storage.data_ptr()
        if not key or key in self._shadows:
            return
        num_words = -(-storage.nbytes() // WORD_BYTES)
        self._shadows[key] = _Shadow(np.full(num_words, -1, np.int64), np.zeros(num_words, np.int64))
        weakref.finalize(storage, self._shadows.pop, key, None)

    def follows(self, memory: torch.Tensor) -> bool:
        """Whether accesses to the memory of this tensor are compared."""
        return memory.untyped_storage().data_ptr() in self._shadows

    def read(self, operation: Operation, memory: torch.Tensor) -> None:
        """Work has read this memory."""
        if (shadow := self._shadows.get(memory.untyped_storage().data_ptr())) is not None:
            words = words_of(memory)
            self._compare(operation, shadow.writer[words], shadow.number[words])
            if operation.actor not in shadow.readers:
                shadow.readers[operation.actor] = np.zeros(len(shadow.writer), np.int64)
            shadow.readers[operation.actor][words] = operation.number
            self._remember(operation)

    def write(self, operation: Operation, memory: torch.Tensor) -> None:
        """Work has written this memory."""
        if (shadow := self._shadows.get(memory.untyped_storage().data_ptr())) is not None:
            words = words_of(memory)
            self._compare(operation, shadow.writer[words], shadow.number[words])
            for actor, numbers in shadow.readers.items():
                read = numbers[words]
                if not operation.includes(actor, int(read.max(initial=0))):
                    self._compare(operation, np.full(len(read), actor), read)
                numbers[words] = 0
            shadow.writer[words], shadow.number[words] = operation.actor, operation.number
            self._remember(operation)

    def _compare(self, operation: Operation, actors: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Report the first earlier access that is not ordered before this operation."""
        known = actors >= 0
        actors, numbers = actors[known], numbers[known]
        unordered = np.flatnonzero(numbers > operation.counts(actors))
        if len(unordered):
            actor, number = int(actors[unordered[0]]), int(numbers[unordered[0]])
            self.races.append(Race(self._names[actor, number], self._text(operation)))

    def _remember(self, operation: Operation) -> None:
        self._names[operation.actor, operation.number] = self._text(operation)

    def _text(self, operation: Operation) -> str:
        return f"{operation.name} on {self.host.name_of(operation.actor)}"
