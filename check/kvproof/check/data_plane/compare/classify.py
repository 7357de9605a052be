"""Classify wrong rows, and find out where their words come from.

The words of a row are compared with what the row must hold and with what it held before the step. A wrong word that
decodes to a label thereby gives the place where it was written. A wrong word that does not may come from another offset
of the same block, which is tested with the row keys of that block. Otherwise the bytes are compared.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvproof.check.data_plane.memory.pattern import Kind, Words, labels_of, row_keys, unpack, word_keys
from kvproof.check.data_plane.run.results import WrongClass

# Of newly computed words one byte in 256 is right by chance; above this percentage it is not chance.
_RIGHT_BYTES_PERCENT = 3
_SHIFT_SAMPLES = 8


@dataclass(frozen=True)
class Classified:
    """The diagnosis of one row.

    label: the label that most wrong words come from; None if they decode to none. num_words: number of wrong words.
    shift_words: distance from the right offset, in words; only for WrongClass.SHIFTED.
    """

    wrong_class: WrongClass
    label: int | None
    num_words: int
    shift_words: int | None = None


def classify(
    words: Words,
    expected: int,
    previous: int,
    neighbours: Words,
    own_index: int,
    is_label: NDArray[np.bool_],
    labels: Words,
) -> Classified:
    """Classify one wrong row.

    words: the content of the row. expected, previous: the labels that the row must hold and held before the step.
    neighbours: the labels expected in the same part of the block; own_index: the index of the row among them.
    labels: the label that each word decodes to. is_label: which of these labels name an existing place.
    """
    columns = word_keys(len(words))
    keys = row_keys(np.array([expected, previous], np.uint64))
    right, before = keys[0] ^ columns, keys[1] ^ columns
    is_wrong = words != right
    num_wrong = int(is_wrong.sum())
    is_unmoved = is_wrong & (words == before)
    if is_unmoved.sum() == num_wrong:
        kind = WrongClass.UNMOVED if num_wrong == len(words) else WrongClass.TORN
        return Classified(kind, previous, num_wrong)
    other = is_wrong & ~is_unmoved
    num_other = int(other.sum())
    decoded = other & is_label
    if 2 * decoded.sum() >= num_other:
        found = _most_frequent(labels[decoded])
        return Classified(_class_of_label(found, expected), found, num_wrong)
    if 2 * (other & (words == 0)).sum() >= num_other:
        return Classified(WrongClass.ZERO, None, num_wrong)
    if shifted := _shifted(words, np.flatnonzero(other & ~is_label), columns, neighbours, own_index):
        return Classified(WrongClass.SHIFTED, shifted[0], num_wrong, shifted[1])
    return Classified(_by_bytes(words[other], right[other], before[other]), None, num_wrong)


def decode(memory: Words) -> Words:
    """The label that every word decodes to. memory and result: `[rows, words]`."""
    return labels_of(memory, word_keys(memory.shape[1]))


def _class_of_label(found: int, expected: int) -> WrongClass:
    origin, right = unpack(found), unpack(expected)
    if origin.kind == Kind.POISON:
        return WrongClass.POISON
    is_same_place = origin._replace(generation=0) == right._replace(generation=0)
    return WrongClass.STALE if is_same_place else WrongClass.MOVED


def _most_frequent(labels: Words) -> int:
    values, counts = np.unique(labels, return_counts=True)
    return int(values[counts.argmax()])


def _shifted(
    words: Words, wrong: NDArray[np.intp], columns: Words, neighbours: Words, own_index: int
) -> tuple[int, int] | None:
    """The label and the distance in words of most sampled words, if most come from another offset of the block."""
    sampled = wrong[:: max(1, len(wrong) // _SHIFT_SAMPLES)][:_SHIFT_SAMPLES]
    if not len(sampled):
        return None
    order = columns.argsort()
    needed = words[sampled][:, None] ^ row_keys(neighbours)  # the column key of the word in each row of the block
    at = np.minimum(np.searchsorted(columns[order], needed), len(columns) - 1)
    hits = columns[order[at]] == needed
    places = [(int(row), int(order[at[i, row]]) - int(sampled[i])) for i, row in zip(*hits.nonzero(), strict=True)]
    if 2 * len(places) < len(sampled):
        return None
    row, distance = max(places, key=places.count)
    return int(neighbours[row]), (own_index - row) * len(columns) - distance


def _by_bytes(found: Words, right: Words, before: Words) -> WrongClass:
    """The class of words that decode to no place."""
    bytes_found, bytes_right, bytes_before = (np.ascontiguousarray(w).view(np.uint8) for w in (found, right, before))
    is_right = bytes_found == bytes_right
    if bool((is_right | (bytes_found == bytes_before)).all()):
        return WrongClass.MIXED
    is_altered = is_right.sum() >= 2 and 100 * is_right.sum() >= _RIGHT_BYTES_PERCENT * is_right.size
    return WrongClass.ALTERED if is_altered else WrongClass.UNKNOWN
