"""Every way to compare finds exactly the rows that differ, in any bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvproof.check.data_plane.compare import compare
from kvproof.check.data_plane.compare.compare import Comparer, by_device, by_memcmp, by_torch
from kvproof.check.data_plane.memory.pattern import Words, row_keys, word_keys

WAYS = [by_memcmp, by_torch, by_device]


def memory_of(num_rows: int, row_words: int) -> tuple[torch.Tensor, Words, Words]:
    labels = np.random.default_rng(1).integers(0, 2**64, num_rows, dtype=np.uint64)
    columns = word_keys(row_words)
    return torch.from_numpy((row_keys(labels)[:, None] ^ columns).view(np.int64)), labels, columns


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("num_rows", "row_words"), [(1, 1), (7, 3), (100, 16), (0, 4)])
def test_rows_that_are_right_are_not_reported(way: Comparer, num_rows: int, row_words: int) -> None:
    assert way(*memory_of(num_rows, row_words)).tolist() == []


@pytest.mark.parametrize("way", WAYS)
def test_one_bit_anywhere_is_found(way: Comparer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "CHUNK_BYTES", 8 * 5 * 8)  # eight rows a chunk, the last chunk shorter
    monkeypatch.setattr(compare, "DEVICE_CHUNK_BYTES", 8 * 5 * 8)
    for row in range(37):
        for bit in (0, 13, 63):
            memory, labels, columns = memory_of(37, 5)
            memory[row, row % 5] ^= 1 << bit if bit < 63 else -(2**63)
            assert way(memory, labels, columns).tolist() == [row]


@pytest.mark.parametrize("way", WAYS)
def test_all_wrong_rows_are_found_in_order(way: Comparer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "CHUNK_BYTES", 8 * 5 * 8)
    monkeypatch.setattr(compare, "DEVICE_CHUNK_BYTES", 8 * 5 * 8)
    memory, labels, columns = memory_of(37, 5)
    for row in (0, 7, 8, 9, 36):
        memory[row] = 0
    assert way(memory, labels, columns).tolist() == [0, 7, 8, 9, 36]


@pytest.mark.parametrize("way", [by_memcmp, by_torch])
def test_the_number_of_threads_is_left_as_it_was(way: Comparer) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        way(*memory_of(10, 4))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_main_memory_is_compared_by_the_c_library_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compare.comparer_for(torch.device("cpu")) is by_memcmp
    monkeypatch.setattr(compare, "_memcmp", lambda: None)
    assert compare.comparer_for(torch.device("cpu")) is by_torch
