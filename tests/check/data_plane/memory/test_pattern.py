"""Words say where they were written, and nothing else looks as if it did."""

from __future__ import annotations

import numpy as np
import pytest

from kvproof.check.data_plane.memory.pattern import (
    GENERATIONS,
    Kind,
    Origin,
    Part,
    fields_of,
    label,
    labels_of,
    mix,
    row_keys,
    unmix,
    unpack,
    word_keys,
)


def random_words(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64)


def test_mixing_loses_nothing() -> None:
    words = random_words(10_000)
    assert (unmix(mix(words)) == words).all()
    assert len(np.unique(mix(np.arange(10_000, dtype=np.uint64)))) == 10_000


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("part", Part)
def test_a_label_is_unpacked_as_it_was_packed(kind: Kind, part: Part) -> None:
    packed = label(kind, 1, 12_345, 7, layer=1023, part=part)
    assert unpack(packed) == Origin(kind, 7, 1, 1023, part, 12_345)
    fields = fields_of(np.array([packed], np.uint64))
    assert Origin(**{name: int(value[0]) for name, value in fields.items()}) == unpack(packed)


def test_generations_wrap_without_touching_the_kind() -> None:
    assert unpack(label(Kind.DATA, 0, 3, GENERATIONS + 2)) == Origin(Kind.DATA, 2, 0, 0, 0, 3)


def test_a_word_found_anywhere_gives_back_its_label() -> None:
    labels = np.array([label(Kind.DATA, pool, row, 5, 2, 1) for pool in (0, 1) for row in range(50)], np.uint64)
    columns = word_keys(37)
    words = row_keys(labels)[:, None] ^ columns
    assert (labels_of(words, columns) == labels[:, None]).all()


def test_no_two_words_of_a_pool_are_equal() -> None:
    labels = [
        label(Kind.DATA, pool, row, 1, layer, part)
        for pool in (0, 1)
        for row in range(64)
        for layer in range(3)
        for part in (0, 1)
    ]
    words = row_keys(np.array(labels, np.uint64))[:, None] ^ word_keys(64)
    assert len(np.unique(words)) == words.size


@pytest.mark.parametrize("value", [0, 1, 0xFF, 2**64 - 1, 0xBBBBBBBBBBBBBBBB])
def test_a_constant_decodes_to_no_place(value: int) -> None:
    labels = labels_of(np.full(4096, value, np.uint64), word_keys(4096))
    fields = fields_of(labels)
    is_place = np.isin(fields["kind"], list(Kind)) & (fields["row"] < 100_000) & (fields["layer"] < 100)
    assert not is_place.any()


def test_random_words_decode_to_no_place() -> None:
    fields = fields_of(labels_of(random_words(100_000).reshape(100, 1000), word_keys(1000)))
    is_place = np.isin(fields["kind"], list(Kind)) & (fields["row"] < 100_000) & (fields["layer"] < 100)
    assert is_place.sum() <= 2  # expected 100,000 × 3/64 × 100,000/2^28 × 100/1024 = 0.2
