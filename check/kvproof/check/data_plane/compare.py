"""Compare memory with its pattern by computing the pattern again, a cache full at a time: no expected copy is kept.

Each chunk of expected words is made in a buffer that stays in the cache, and compared there by the C library's
`memcmp`, or where that cannot be had by `torch.equal` on 64-bit integers. Only a chunk that differs is looked at row
by row. Both ways run on one thread: chunks of this size are below what torch shares out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.pattern import Words

CHUNK_BYTES = 256 * 1024
DEVICE_CHUNK_BYTES = 16 * 1024 * 1024  # fits the second-level cache of a current GPU
Comparer = Callable[[torch.Tensor, Words, Words], NDArray[np.int64]]


def bad_rows(memory: torch.Tensor, keys: Words, columns: Words) -> NDArray[np.int64]:
    """Numbers of the rows, ascending, that differ from `keys[row] XOR columns[word]` in any bit.

    memory: int64, contiguous, [rows, words], on any device. keys: one for each row. columns: one for each word.
    On CUDA work on `memory` must have ended on, or be ordered before, the current stream.
    """
    return comparer_for(memory.device)(memory, keys, columns)


def comparer_for(device: torch.device) -> Comparer:
    """The fastest way to compare on this device."""
    if device.type == "cuda":
        return by_device
    return by_memcmp if _memcmp() is not None else by_torch


def by_memcmp(memory: torch.Tensor, keys: Words, columns: Words) -> NDArray[np.int64]:
    """In main memory, through the C library."""
    memcmp = _memcmp()
    assert memcmp is not None
    words = memory.numpy().view(np.uint64)
    num_rows, row_words = words.shape
    row_bytes = row_words * words.itemsize
    step = max(1, CHUNK_BYTES // row_bytes)
    expected = np.empty((step, row_words), np.uint64)
    start, there = memory.data_ptr(), expected.ctypes.data
    bad: list[NDArray[np.int64]] = []
    column = keys[:, None]
    for first in range(0, num_rows, step):
        count = min(step, num_rows - first)
        np.bitwise_xor(column[first : first + count], columns, out=expected[:count])
        if memcmp(start + first * row_bytes, there, count * row_bytes):
            bad.append(first + _differing(words[first : first + count], expected[:count]))
    return _joined(bad)


def by_torch(memory: torch.Tensor, keys: Words, columns: Words) -> NDArray[np.int64]:
    """In main memory, with torch alone."""
    num_rows, row_words = memory.shape
    step = max(1, CHUNK_BYTES // (row_words * 8))
    row_keys, word_keys = torch.from_numpy(keys.view(np.int64))[:, None], torch.from_numpy(columns.view(np.int64))
    buffer = torch.empty((step, row_words), dtype=torch.int64)
    bad: list[NDArray[np.int64]] = []
    for first in range(0, num_rows, step):
        found, expected = memory[first : first + step], buffer[: min(step, num_rows - first)]
        torch.bitwise_xor(row_keys[first : first + step], word_keys, out=expected)
        if not torch.equal(found, expected):
            bad.append(first + _differing(found.numpy(), expected.numpy()))
    return _joined(bad)


def by_device(memory: torch.Tensor, keys: Words, columns: Words) -> NDArray[np.int64]:
    """On an accelerator: all chunks are queued, and the answer is fetched once."""
    num_rows, row_words = memory.shape
    step = max(1, DEVICE_CHUNK_BYTES // (row_words * 8))
    row_keys = torch.from_numpy(keys.view(np.int64)).to(memory.device)[:, None]
    word_keys = torch.from_numpy(columns.view(np.int64)).to(memory.device)
    is_bad = torch.empty(num_rows, dtype=torch.bool, device=memory.device)
    for first in range(0, num_rows, step):
        expected = row_keys[first : first + step] ^ word_keys
        is_bad[first : first + step] = (memory[first : first + step] != expected).any(1)
    rows: NDArray[np.int64] = is_bad.nonzero().flatten().cpu().numpy()
    return rows


@cache
def _memcmp() -> Callable[[int, int, int], int] | None:
    """The C library's, if it can be found."""
    try:
        function = ctypes.CDLL(None).memcmp
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int
    compare: Callable[[int, int, int], int] = function
    return compare


def _differing(found: NDArray[np.generic], expected: NDArray[np.generic]) -> NDArray[np.int64]:
    rows: NDArray[np.int64] = np.flatnonzero((found != expected).any(axis=1))
    return rows


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
