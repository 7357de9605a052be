"""Comparison on CUDA with one Triton kernel, which reads the memory once and computes the pattern in registers.

Without CUDA the kernel runs only in Triton's interpreter (set TRITON_INTERPRET=1 before triton is imported). That tests
its logic, not its speed. Main memory is always compared by `compare`.

Triton compiles the kernel at the first call, which needs a C compiler and a matching driver. So the kernel is first
tried on a few words. If it fails or gives a wrong answer, torch compares instead, and the report gives the reason.
"""

import importlib.util
import os
from contextlib import nullcontext
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.memory.pattern import Words

TILE_WORDS = 2048  # words of 8 bytes in a tile
WORDS_MAX = 1024  # words of one row in a tile
ROW_TILES = 8  # tiles that a program iterates over


class WrongWords(NamedTuple):
    """For each row, the number of wrong words and the first of them (2^31 - 1 if none is wrong). Both int32 [rows]."""

    counts: torch.Tensor
    firsts: torch.Tensor


def is_available() -> bool:
    """Whether triton can be imported and has a device or an interpreter to run on."""
    return importlib.util.find_spec("triton") is not None and (torch.cuda.is_available() or _is_interpreted())


@cache
def refusal(device: torch.device) -> str:
    """Why the kernel is not used on this device; empty if it is. The kernel is tried once, with one wrong row."""
    if not is_available():
        return "triton cannot be imported or has no device to run on"
    keys, columns = (np.arange(1, size + 1, dtype=np.uint64) << np.uint64(40) for size in (5, 3))
    memory = torch.from_numpy((keys[:, None] ^ columns).view(np.int64)).to(device)
    memory[3, 1] ^= 1
    try:
        found = bad_rows(memory, keys, columns).tolist()
    except Exception as error:  # a compiler, a linker or a driver may raise anything
        return f"the Triton kernel failed in a trial: {f'{type(error).__name__}: {error}'.splitlines()[0]}"
    return "" if found == [3] else f"the Triton kernel reported rows {found} in a trial in which only row 3 was wrong"


def bad_rows(memory: torch.Tensor, keys: Words, columns: Words) -> NDArray[np.int64]:
    """Like `compare.bad_rows`, for memory on a CUDA device. The call waits for the kernel."""
    rows: NDArray[np.int64] = wrong_words(memory, keys, columns).counts.nonzero().flatten().cpu().numpy()
    return rows


def wrong_words(memory: torch.Tensor, keys: Words, columns: Words) -> WrongWords:
    """Count the words of each row that differ from `keys[row] XOR columns[word]`, on the current stream.

    memory: int64 [rows, words], words contiguous. keys: one per row. columns: one per word of a row.
    Raises ValueError for memory of another shape or type.
    """
    if memory.dtype != torch.int64 or memory.dim() != 2 or memory.stride(1) != 1:
        raise ValueError(f"memory must be int64 [rows, words] with contiguous rows, not {memory.dtype} {memory.shape}")
    if memory.shape != (len(keys), len(columns)):
        raise ValueError(f"memory has shape {tuple(memory.shape)}, but there are {len(keys)} and {len(columns)} keys")
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
    # Triton launches on the current device, which may differ from the device of the memory.
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
    """The number of programs along the rows and along the words. rows, words: the size of a tile."""
    return -(-num_rows // (rows * ROW_TILES)), -(-num_words // words)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
