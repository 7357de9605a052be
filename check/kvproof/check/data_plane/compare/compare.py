"""Compare memory with its pattern. The pattern is computed again in chunks, so that no expected copy is kept.

Each chunk of expected words is computed in a buffer that stays in the processor cache, and compared there by the C
library's `memcmp`, or by `torch.equal` on 64-bit integers if `memcmp` is not available. Only a chunk that differs is
compared row by row. Both ways use one thread. A chunk is so large that the cost of the calls does not matter.
"""

import ctypes
import threading
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.memory.pattern import Words, row_keys
from kvproof.check.data_plane.speed.stopwatch import one_thread

CHUNK_BYTES = 512 * 1024
DEVICE_CHUNK_BYTES = 16 * 1024 * 1024  # fits the second-level cache of a current GPU
Comparer = Callable[[torch.Tensor, Words, Words], NDArray[np.int64]]


def bad_rows(memory: torch.Tensor, labels: Words, columns: Words) -> NDArray[np.int64]:
    """The numbers of the rows that differ from `row_keys(labels)[row] XOR columns[word]` in any bit, ascending.

    memory: int64, contiguous, [rows, words], on any device. labels: one per row. columns: the key of each word of a
    row. On CUDA, earlier work on `memory` must have ended or be ordered before the current stream.
    """
    return comparer_for(memory.device)(memory, labels, columns)


def comparer_for(device: torch.device) -> Comparer:
    """The fastest way to compare memory on this device."""
    if device.type == "cuda":
        from kvproof.check.data_plane.compare import triton_verify  # imports triton, which only GPU installations have

        return by_device if triton_verify.refusal(device) else triton_verify.bad_rows
    return by_memcmp if _memcmp() is not None else by_torch


def by_memcmp(memory: torch.Tensor, labels: Words, columns: Words) -> NDArray[np.int64]:
    """Like `bad_rows`, for main memory, with the `memcmp` of the C library."""
    memcmp = _memcmp()
    assert memcmp is not None

    def are_equal(found: torch.Tensor, made: torch.Tensor) -> bool:
        return not memcmp(found.data_ptr(), made.data_ptr(), made.nbytes)

    return _by_chunks(memory, labels, columns, are_equal)


def by_torch(memory: torch.Tensor, labels: Words, columns: Words) -> NDArray[np.int64]:
    """Like `bad_rows`, for main memory, with torch alone."""
    return _by_chunks(memory, labels, columns, torch.equal)


def _by_chunks(
    memory: torch.Tensor, labels: Words, columns: Words, are_equal: Callable[[torch.Tensor, torch.Tensor], bool]
) -> NDArray[np.int64]:
    """Compute each chunk of the pattern, and compare it."""
    num_rows, row_words = memory.shape
    step = max(1, CHUNK_BYTES // (row_words * memory.itemsize))
    keys, word_keys = (torch.from_numpy(words.view(np.int64)) for words in (row_keys(labels), columns))
    buffer = _buffer(min(step, num_rows) * row_words).view(-1, row_words)
    bad: list[NDArray[np.int64]] = []
    with one_thread():
        chunks = zip(torch.split(memory, step), torch.split(keys[:, None], step), strict=True)
        for number, (found, some_keys) in enumerate(chunks):
            out = buffer if found.size(0) == buffer.size(0) else buffer[: found.size(0)]
            made = torch.bitwise_xor(some_keys, word_keys, out=out)
            if not are_equal(found, made):
                bad.append(number * step + np.flatnonzero((found != made).any(1).numpy()))
    return np.concatenate(bad) if bad else np.empty(0, np.int64)


_LOCAL = threading.local()


def _buffer(num_words: int) -> torch.Tensor:
    """This thread's buffer for a chunk. It is kept, because the system clears each page of new memory."""
    kept: torch.Tensor | None = getattr(_LOCAL, "buffer", None)
    if kept is None or len(kept) < num_words:
        kept = _LOCAL.buffer = torch.empty(num_words, dtype=torch.int64)
    return kept[:num_words]


def by_device(memory: torch.Tensor, labels: Words, columns: Words) -> NDArray[np.int64]:
    """Like `bad_rows`, for an accelerator, with torch alone: all chunks are queued, and the answer is fetched once."""
    num_rows, row_words = memory.shape
    step = max(1, DEVICE_CHUNK_BYTES // (row_words * 8))
    keys = torch.from_numpy(row_keys(labels).view(np.int64)).to(memory.device)[:, None]
    word_keys = torch.from_numpy(columns.view(np.int64)).to(memory.device)
    is_bad = torch.empty(num_rows, dtype=torch.bool, device=memory.device)
    for first in range(0, num_rows, step):
        expected = keys[first : first + step] ^ word_keys
        is_bad[first : first + step] = (memory[first : first + step] != expected).any(1)
    rows: NDArray[np.int64] = is_bad.nonzero().flatten().cpu().numpy()
    return rows


@cache
def _memcmp() -> Callable[[int, int, int], int] | None:
    """The function of the C library; None if it cannot be loaded."""
    try:
        function = ctypes.CDLL(None).memcmp
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int
    compare: Callable[[int, int, int], int] = function
    return compare
