"""The kernel of `triton_verify`. Importing this module imports triton, which only the GPU extra installs.

A program handles one tile of columns and iterates over tiles of rows. Its column keys stay in registers, and the key of
a row is computed from its label, as `memory/pattern.py` does on the host. Each word of memory is loaded once, and the
bits in which it differs are collected in registers: one load and a few integer operations per word, so memory bandwidth
is the limit. Only a program that met a wrong word reads its rows again, to count the wrong words of each.
"""

import triton
import triton.language as tl

from kvproof.check.data_plane.memory import pattern

GOLDEN = tl.constexpr(pattern.GOLDEN)
FIRST_MULTIPLIER, SECOND_MULTIPLIER = (tl.constexpr(multiplier) for multiplier in pattern.MULTIPLIERS)
FIRST_SHIFT, SECOND_SHIFT, LAST_SHIFT = (tl.constexpr(shift) for shift in pattern.SHIFTS)


@triton.jit
def key_of(label):  # type: ignore[no-untyped-def]  # the compiler reads annotations, and knows only its own
    """The key of a row, `pattern.row_keys`. label: uint64."""
    word = label * tl.full((), GOLDEN, tl.uint64)
    word = (word ^ (word >> FIRST_SHIFT)) * tl.full((), FIRST_MULTIPLIER, tl.uint64)
    word = (word ^ (word >> SECOND_SHIFT)) * tl.full((), SECOND_MULTIPLIER, tl.uint64)
    return (word ^ (word >> LAST_SHIFT)).to(tl.int64, bitcast=True)


@triton.jit
def difference(memory, labels, column, row, word, num_rows, num_words, row_stride):  # type: ignore[no-untyped-def]
    """The bits in which a tile of memory differs from its pattern; 0 outside the memory. int64 [rows, words]."""
    is_row = row < num_rows
    is_here = is_row[:, None] & (word < num_words)[None, :]
    label = tl.load(labels + row, mask=is_row, other=0).to(tl.uint64, bitcast=True)
    found = tl.load(memory + row.to(tl.int64)[:, None] * row_stride + word[None, :], mask=is_here, other=0)
    return tl.where(is_here, found ^ column[None, :] ^ key_of(label)[:, None], 0)


@triton.jit
def count_wrong_words(  # type: ignore[no-untyped-def]
    memory,
    labels,
    columns,
    total,
    counts,
    num_rows,
    num_words,
    row_stride,
    ROW_TILES: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    WORDS: tl.constexpr,  # noqa: N803
):
    """Count in counts[row] the words that differ from key_of(labels[row]) XOR columns[word], and all of them in total.

    memory: int64 [num_rows, num_words], rows row_stride words apart. total: int32 [1], counts: int32, both initially 0.
    Grid: (groups of ROW_TILES tiles of ROWS rows, tiles of WORDS words). The rows are the first axis because CUDA
    limits the second to 65,535, and pools of many GB have more groups of rows.
    """
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    column = tl.load(columns + word, mask=word < num_words, other=0)
    wrong = tl.zeros((ROWS, WORDS), tl.int64)
    for tile in range(ROW_TILES):
        row = (tl.program_id(0) * ROW_TILES + tile) * ROWS + tl.arange(0, ROWS)
        wrong |= difference(memory, labels, column, row, word, num_rows, num_words, row_stride)
    if tl.max(tl.max((wrong != 0).to(tl.int32), 1), 0) > 0:
        for tile in range(ROW_TILES):
            row = (tl.program_id(0) * ROW_TILES + tile) * ROWS + tl.arange(0, ROWS)
            wrong = difference(memory, labels, column, row, word, num_rows, num_words, row_stride)
            count = tl.sum((wrong != 0).to(tl.int32), 1)
            tl.atomic_add(counts + row, count, mask=(row < num_rows) & (count > 0))
            tl.atomic_add(total, tl.sum(count, 0))
