"""Verification on CUDA by one Triton kernel: the pattern is recomputed where the memory is read, once.

Without CUDA the kernel runs only in Triton's interpreter (TRITON_INTERPRET=1 set before triton is imported), which
proves its logic and says nothing of its speed; main memory is always verified by `compare`.

Triton compiles at the first call, which needs a C compiler and a driver that goes with it. So the kernel is tried on a
few words first; where it fails, or says something wrong, torch compares instead, and a report says why.
"""

from __future__ import annotations

import importlib.util
import os
from contextlib import nullcontext
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.memory.pattern import Words

TILE_WORDS = 2048  # of 8 bytes, in a tile of rows and words
WORDS_MAX = 1024  # of one row in a tile
ROW_TILES = 8  # that a program walks over


class WrongWords(NamedTuple):
    """For each row: how many words are wrong, and the first of them (2^31 - 1 where none is). int32 [rows]."""

    counts: torch.Tensor
    firsts: torch.Tensor


def is_available() -> bool:
    """Whether triton can be imported and there is something for it to run on."""
    return importlib.util.find_spec("triton") is not None and (torch.cuda.is_available() or _is_interpreted())


@cache
def refusal(device: torch.device) -> str:
    """Why the kernel is not used on this device; empty if it is. It is tried once, on rows of which one is wrong."""
    if not is_available():
        return "triton cannot be imported, or has no device to run on"
    keys, columns = (np.arange(1, size + 1, dtype=np.uint64) << np.uint64(40) for size in (5, 3))
    memory = torch.from_numpy((keys[:, None] ^ columns).view(np.int64)).to(device)
    memory[3, 1] ^= 1
    try:
        found = bad_rows(memory, keys, columns).tolist()
    except Exception as error:  # whatever a compiler, a linker or a driver may raise
        return f"the Triton kernel failed when it was tried: {f'{type(error).__name__}: {error}'.splitlines()[0]}"
    return "" if found == [3] else f"the Triton kernel took rows {found} for wrong where row 3 was"


def bad_rows(memory: torch.Tensor, keys: Words, columns: Words) -> NDArray[np.int64]:
    """As `compare.bad_rows`, for memory on a CUDA device. The call waits for the kernel."""
    rows: NDArray[np.int64] = wrong_words(memory, keys, columns).counts.nonzero().flatten().cpu().numpy()
    return rows


def wrong_words(memory: torch.Tensor, keys: Words, columns: Words) -> WrongWords:
    """Count what differs from `keys[row] XOR columns[word]`, row by row, on the current stream.

    memory: int64 [rows, words], words side by side. keys: one for each row. columns: one for each word.
    Raises ValueError for memory of another shape or type.
    """
    if memory.dtype != torch.int64 or memory.dim() != 2 or memory.stride(1) != 1:
        raise ValueError(f"memory must be int64 [rows, words], words side by side; it is {memory.dtype} {memory.shape}")
    if memory.shape != (len(keys), len(columns)):
        raise ValueError(f"memory of {tuple(memory.shape)} rows and words, but {len(keys)} and {len(columns)} keys")
    from kvproof.check.data_plane.compare.triton_kernel import NO_WORD, count_wrong_words

    num_rows, num_words = memory.shape
    counts = torch.zeros(num_rows, dtype=torch.int32, device=memory.device)
    firsts = torch.full_like(counts, NO_WORD.value)
    if not memory.numel():
        return WrongWords(counts, firsts)
    words = min(_power_of_two(num_words), WORDS_MAX)
    rows = max(1, TILE_WORDS // words)
    grid = grid_of(num_rows, num_words, rows, words)
    row_keys, word_keys = (torch.from_numpy(part.view(np.int64)).to(memory.device) for part in (keys, columns))
    # Triton launches on the current device, which need not be that of the memory.
    with torch.cuda.device(memory.device) if memory.is_cuda else nullcontext():
        count_wrong_words[grid](
            memory,
            row_keys,
            word_keys,
            counts,
            firsts,
            num_rows,
            num_words,
            memory.stride(0),
            ROW_TILES=ROW_TILES,
            ROWS=rows,
            WORDS=words,
        )
    return WrongWords(counts, firsts)


def grid_of(num_rows: int, num_words: int, rows: int, words: int) -> tuple[int, int]:
    """Programs along the rows and along the words of a row, for tiles of so many rows and words."""
    return -(-num_rows // (rows * ROW_TILES)), -(-num_words // words)


def _power_of_two(number: int) -> int:
    """The least power of two that is no less."""
    return 1 << (number - 1).bit_length()


def _is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
