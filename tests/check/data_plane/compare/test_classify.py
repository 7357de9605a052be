"""Classify a single row: newly written words and altered words are not confused."""

from __future__ import annotations

import numpy as np
import pytest

from kvproof.check.data_plane.compare.classify import classify
from kvproof.check.data_plane.memory.pattern import Kind, Words, label, row_keys, word_keys
from kvproof.check.data_plane.run.results import WrongClass

EXPECTED, PREVIOUS = label(Kind.DATA, 0, 5, 1), label(Kind.DATA, 1, 9, 1)


def right_words(num_words: int) -> Words:
    return row_keys(np.array([EXPECTED], np.uint64)) ^ word_keys(num_words)


def class_of(words: Words) -> WrongClass:
    """With no word that decodes to a place."""
    nothing = np.zeros(len(words), np.bool_)
    return classify(words, EXPECTED, PREVIOUS, np.array([EXPECTED], np.uint64), 0, nothing, words).wrong_class


@pytest.mark.parametrize(("num_words", "num_rows"), [(1, 100), (256, 20)])
def test_random_words_are_unknown_though_some_bytes_are_right_by_chance(num_words: int, num_rows: int) -> None:
    """Of 100 single words three have a right byte; of 256 words eight bytes are right."""
    random = np.random.default_rng(4)
    rows = random.integers(0, 2**64, (num_rows, num_words), dtype=np.uint64)
    right = right_words(num_words)
    num_right = (rows.view(np.uint8) == right.view(np.uint8)).sum()
    assert num_right >= 2
    assert {class_of(row) for row in rows} == {WrongClass.UNKNOWN}


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_one_wrong_bit_of_one_word_is_an_altered_word(bit: int) -> None:
    words = right_words(16)
    words[3] ^= np.uint64(1 << bit)
    assert class_of(words) is WrongClass.ALTERED
