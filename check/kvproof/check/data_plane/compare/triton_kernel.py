"""The kernel of `triton_verify`. Importing this module imports triton, which only the GPU extra installs.

A program handles one tile of columns and iterates over tiles of rows. Its column keys stay in registers. Each word of
memory is loaded once, XORed with its column key and compared with the key of its row: one load and two integer
operations per word, so memory bandwidth is the limit. Only a tile with a wrong word writes anything.
"""

import triton
import triton.language as tl

NO_WORD = tl.constexpr(2147483647)


@triton.jit
def count_wrong_words(  # type: ignore[no-untyped-def]  # the compiler reads annotations, and knows only its own
    memory,
    keys,
    columns,
    counts,
    firsts,
    num_rows,
    num_words,
    row_stride,
    ROW_TILES: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    WORDS: tl.constexpr,  # noqa: N803
):
    """Count in counts[row] the words that differ from keys[row] XOR columns[word]; firsts[row] is the first one.

    memory: int64 [num_rows, num_words], rows row_stride words apart. counts: int32, initially 0. firsts: int32,
    initially NO_WORD. Grid: (groups of ROW_TILES tiles of ROWS rows, tiles of WORDS words). The rows are the first axis
    because CUDA limits the second to 65,535, and pools of many GB have more groups of rows.
    """
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    is_word = word < num_words
    column = tl.load(columns + word, mask=is_word, other=0)
    for tile in range(ROW_TILES):
        row = (tl.program_id(0) * ROW_TILES + tile) * ROWS + tl.arange(0, ROWS)
        is_row = row < num_rows
        key = tl.load(keys + row, mask=is_row, other=0)
        is_here = is_row[:, None] & is_word[None, :]
        place = row.to(tl.int64)[:, None] * row_stride + word[None, :]
        found = tl.load(memory + place, mask=is_here, other=0)
        is_wrong = ((found ^ column[None, :]) != key[:, None]) & is_here
        count = tl.sum(is_wrong.to(tl.int32), 1)
        if tl.max(count, 0) > 0:
            first = tl.min(tl.where(is_wrong, word[None, :], NO_WORD), 1)
            tl.atomic_add(counts + row, count, mask=is_row)
            tl.atomic_min(firsts + row, first, mask=is_row)
