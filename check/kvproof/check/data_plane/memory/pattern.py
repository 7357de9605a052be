"""The pattern that fills the pools: each word encodes the place where it was written.

A row is the KV of one slot: one layer, key or value, of one block. Its label packs into 64 bits

    magic 6 | generation 16 | pool 2 | layer 10 | part 2 | row 28

and word j of the row is `row_key(label) XOR word_key(j)`. Both keys go through a bijection of 64 bits (the finaliser of
splitmix64), so a word that is found anywhere can be decoded to its label: unmix(word XOR word_key(j)). Three magic
numbers distinguish data, poison and guard rows from each other and from foreign words: a word of zeros decodes to
magic 0, and of random words one in some millions decodes to an existing place. Two different places have the same word
with probability 2^-64.

The pattern is separable: one key per row and one per column give each word by one XOR, so the comparison runs at the
speed of memory. XOR keeps byte lanes apart, unlike a sum, so a fault in single bytes stays recognisable.

The generation counts the writes of a row, modulo 2^16. Poison has the generation of the data that it replaced.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)

_ROW_BITS, _PART_BITS, _LAYER_BITS, _POOL_BITS, _GENERATION_BITS = 28, 2, 10, 2, 16
_PART_AT = _ROW_BITS
_LAYER_AT = _PART_AT + _PART_BITS
_POOL_AT = _LAYER_AT + _LAYER_BITS
_GENERATION_AT = _POOL_AT + _POOL_BITS
_MAGIC_AT = _GENERATION_AT + _GENERATION_BITS

ROWS_MAX, LAYERS_MAX, GENERATIONS = 1 << _ROW_BITS, 1 << _LAYER_BITS, 1 << _GENERATION_BITS


class Kind(IntEnum):
    """The kind of content of a row. The number is its magic."""

    DATA = 0x2D
    POISON = 0x1B
    GUARD = 0x36


class Part(IntEnum):
    """The half of a layer. A latent cache has one part that is both."""

    KEY = 0
    VALUE = 1
    JOINT = 2


class Origin(NamedTuple):
    """An unpacked label. row: counts over all blocks of the pool; for a guard row, over its whole memory."""

    kind: int
    generation: int
    pool: int
    layer: int
    part: int
    row: int


def mix(words: Words) -> Words:
    """A bijection of 64 bits in which every bit depends on every bit."""
    first, second, last = (np.uint64(shift) for shift in SHIFTS)
    words = (words ^ (words >> first)) * np.uint64(MULTIPLIERS[0])
    words = (words ^ (words >> second)) * np.uint64(MULTIPLIERS[1])
    return words ^ (words >> last)


def unmix(words: Words) -> Words:
    """The inverse of `mix`."""
    first, second, last = (np.uint64(shift) for shift in SHIFTS)
    words = words ^ (words >> last) ^ (words >> (last + last))
    words = words * np.uint64(pow(MULTIPLIERS[1], -1, 1 << 64))
    words = words ^ (words >> second) ^ (words >> (second + second))
    words = words * np.uint64(pow(MULTIPLIERS[0], -1, 1 << 64))
    words = words ^ (words >> first) ^ (words >> (first + first))
    return words


def label(kind: Kind, pool: int, row: int, generation: int = 0, layer: int = 0, part: int = 0) -> int:
    packed = int(kind) << _MAGIC_AT | (generation % GENERATIONS) << _GENERATION_AT | pool << _POOL_AT
    return packed | layer << _LAYER_AT | part << _PART_AT | row


def place_bits(layer: int, part: int) -> int:
    """The bits to OR to a label of layer 0, part 0, to get the label of another layer and part."""
    return layer << _LAYER_AT | part << _PART_AT


def unpack(packed: int) -> Origin:
    return Origin(
        packed >> _MAGIC_AT,
        packed >> _GENERATION_AT & GENERATIONS - 1,
        packed >> _POOL_AT & (1 << _POOL_BITS) - 1,
        packed >> _LAYER_AT & LAYERS_MAX - 1,
        packed >> _PART_AT & (1 << _PART_BITS) - 1,
        packed & ROWS_MAX - 1,
    )


def row_keys(labels: Words) -> Words:
    """The key of each row, from its label."""
    return mix(labels * np.uint64(GOLDEN))


def word_keys(num_words: int) -> Words:
    """The key of each word (column) of a row."""
    numbers = np.arange(1, num_words + 1, dtype=np.uint64)
    return mix(numbers * np.uint64(GOLDEN))


def labels_of(words: Words, keys: Words) -> Words:
    """The labels that the words decode to. keys: the keys of the columns of the words."""
    return unmix(words ^ keys) * np.uint64(pow(GOLDEN, -1, 1 << 64))


def fields_of(labels: Words) -> dict[str, Words]:
    """The fields of many labels, by their names in `Origin`."""
    fields = {"kind": labels >> np.uint64(_MAGIC_AT), "row": labels & np.uint64(ROWS_MAX - 1)}
    for name, at, bits in (
        ("generation", _GENERATION_AT, _GENERATION_BITS),
        ("pool", _POOL_AT, _POOL_BITS),
        ("layer", _LAYER_AT, _LAYER_BITS),
        ("part", _PART_AT, _PART_BITS),
    ):
        fields[name] = (labels >> np.uint64(at)) & np.uint64((1 << bits) - 1)
    return fields
