"""Comparison on CUDA with one Triton kernel, which reads the memory once and computes the pattern in registers.

What must be there is sent as the labels of the rows, 8 bytes for each, and one number is fetched: how many words are
wrong. Only if it is not 0 the counts of the rows are fetched too. On an H200 sending the labels of rows of 2 KiB takes
a third of the time of reading the rows. So the labels are sent in pieces, each while the kernel reads the rows of the
piece before. Pieces grow, because each of them costs a launch and leaves the device half busy at its end.

Without CUDA the kernel runs only in Triton's interpreter (set TRITON_INTERPRET=1 before triton is imported). That tests
its logic, not its speed. Main memory is always compared by `compare`.

Triton compiles the kernel at the first call, which needs a C compiler and a matching driver. So the kernel is first
tried on a few words. If it fails or gives a wrong answer, torch compares instead, and the report gives the reason.
"""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.memory.pattern import Words, row_keys

# Of 16 sizes that were tried on an H200 the fastest: 0.98 of the speed of a plain read.
TILE_WORDS = 1024  # words of 8 bytes in a tile
ROW_TILES = 16  # tiles that a program iterates over
PIECE_BYTES = 64 * 1024 * 1024  # of memory whose labels are sent before the kernel begins
PIECE_GROWTH = 3  # so many rows more are sent at once the next time; sending takes a third of the time of reading


class WrongWords(NamedTuple):
    """The number of wrong words, int32 [1], and that of each row, int32 [rows]."""

    total: torch.Tensor
    counts: torch.Tensor


def is_available() -> bool:
    """Whether triton can be imported and has a device or an interpreter to run on."""
    return importlib.util.find_spec("triton") is not None and (torch.cuda.is_available() or _is_interpreted())


@cache
def refusal(device: torch.device) -> str:
    """Why the kernel is not used on this device; empty if it is. The kernel is tried once, with one wrong row."""
    if not is_available():
        return "triton cannot be imported or has no device to run on"
    labels, columns = (np.arange(1, size + 1, dtype=np.uint64) << np.uint64(40) for size in (5, 3))
    memory = torch.from_numpy((row_keys(labels)[:, None] ^ columns).view(np.int64)).to(device)
    memory[3, 1] ^= 1
    try:
        found = bad_rows(memory, labels, columns).tolist()
    except Exception as error:  # a compiler, a linker or a driver may raise anything
        return f"the Triton kernel failed in a trial: {f'{type(error).__name__}: {error}'.splitlines()[0]}"
    return "" if found == [3] else f"the Triton kernel reported rows {found} in a trial in which only row 3 was wrong"


def bad_rows(memory: torch.Tensor, labels: Words, columns: Words) -> NDArray[np.int64]:
    """Like `compare.bad_rows`, for memory on a CUDA device. The call waits for the kernel."""
    found = wrong_words(memory, labels, columns)
    if not found.total.item():
        return np.empty(0, np.int64)
    rows: NDArray[np.int64] = found.counts.nonzero().flatten().cpu().numpy()
    return rows


def wrong_words(memory: torch.Tensor, labels: Words, columns: Words) -> WrongWords:
    """Count the words of each row that differ from `row_keys(labels)[row] XOR columns[word]`, on the current stream.

    memory: int64 [rows, words], words contiguous. labels: one per row; in pinned memory they must not change until the
    kernel has ended. columns: one per word of a row.
    Raises ValueError for memory of another shape or type.
    """
    if memory.dtype != torch.int64 or memory.dim() != 2 or memory.stride(1) != 1:
        raise ValueError(f"memory must be int64 [rows, words] with contiguous rows, not {memory.dtype} {memory.shape}")
    if memory.shape != (len(labels), len(columns)):
        raise ValueError(
            f"memory has shape {tuple(memory.shape)}, but there are {len(labels)} labels and {len(columns)} columns"
        )
    from kvproof.check.data_plane.compare.triton_kernel import count_wrong_words

    num_rows, num_words = memory.shape
    numbers = torch.zeros(1 + num_rows, dtype=torch.int32, device=memory.device)
    total, counts = numbers[:1], numbers[1:]
    if not memory.numel():
        return WrongWords(total, counts)
    words = min(_power_of_two(num_words), TILE_WORDS)
    rows = TILE_WORDS // words
    word_keys = torch.from_numpy(columns.view(np.int64)).to(memory.device, non_blocking=True)
    # Triton launches on the current device, which may differ from the device of the memory.
    with torch.cuda.device(memory.device) if memory.is_cuda else nullcontext():
        for piece, sent in _sent(labels, max(1, PIECE_BYTES // (num_words * memory.itemsize)), memory.device):
            count_wrong_words[grid_of(len(sent), num_words, rows, words)](
                memory[piece],
                sent,
                word_keys,
                total,
                counts[piece],
                len(sent),
                num_words,
                memory.stride(0),
                ROW_TILES=ROW_TILES,
                ROWS=rows,
                WORDS=words,
            )
    return WrongWords(total, counts)


def _sent(labels: Words, step: int, device: torch.device) -> Iterator[tuple[slice, torch.Tensor]]:
    """The labels on the device as int64, first those of `step` rows, then more at a time, on the current stream."""
    here, pieces, first = torch.from_numpy(labels.view(np.int64)), list[slice](), 0
    while first < len(labels):
        pieces.append(slice(first, first + step))
        first, step = first + step, step * PIECE_GROWTH
    if device.type != "cuda" or len(pieces) == 1:
        for piece in pieces:
            yield piece, here[piece].to(device, non_blocking=True)
        return
    there = torch.empty_like(here, device=device)
    current, sender = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    sender.wait_stream(current)  # earlier work may still use the memory that `there` got
    for piece in pieces:
        with torch.cuda.stream(sender):
            there[piece].copy_(here[piece], non_blocking=True)
        current.wait_stream(sender)
        yield piece, there[piece]


def grid_of(num_rows: int, num_words: int, rows: int, words: int) -> tuple[int, int]:
    """The number of programs along the rows and along the words. rows, words: the size of a tile."""
    return -(-num_rows // (rows * ROW_TILES)), -(-num_words // words)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
