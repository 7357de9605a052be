"""The kernel of `row_copier`. Importing this module imports triton."""

import triton
import triton.language as tl


@triton.jit
def copy_rows(planes, pairs, num_words, WORDS: tl.constexpr, IS_WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Copy row source to row target of every plane, for each pair.

    planes: int64 [planes, 4]: the addresses of the source and of the target, and the bytes from one row to the next in
    each. pairs: int64 [pairs, 2]: source and target. num_words: int64 words of a row. IS_WIDE: every row begins at a
    multiple of 16 bytes, so two words are moved at once. Grid: (pairs, planes, tiles of WORDS words). No target may be
    a source.
    """
    pair, plane = pairs + 2 * tl.program_id(0), planes + 4 * tl.program_id(1)
    word = tl.program_id(2) * WORDS + tl.arange(0, WORDS)
    source = tl.load(plane) + tl.load(pair) * tl.load(plane + 2) + word * 8
    target = tl.load(plane + 1) + tl.load(pair + 1) * tl.load(plane + 3) + word * 8
    sources, targets = source.to(tl.pointer_type(tl.int64)), target.to(tl.pointer_type(tl.int64))
    if IS_WIDE:
        sources = tl.max_contiguous(tl.multiple_of(sources, 16), 2)
        targets = tl.max_contiguous(tl.multiple_of(targets, 16), 2)
    is_word = word < num_words
    tl.store(targets, tl.load(sources, mask=is_word), mask=is_word)
