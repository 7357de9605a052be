"""The kernel of `row_copier`. Importing this module imports triton."""

import triton
import triton.language as tl


@triton.jit
def copy_rows(planes, pairs, num_words, WORDS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Copy row source to row target of every plane, for each pair.

    planes: int64 [planes, 4]: the addresses of the source and of the target, and the words from one row to the next in
    each. pairs: int64 [pairs, 2]: source and target. num_words: int64 words of a row. Grid: (pairs, planes, tiles of
    WORDS words). No target may be a source.
    """
    pair, plane = pairs + 2 * tl.program_id(0), planes + 4 * tl.program_id(1)
    source = tl.load(plane).to(tl.pointer_type(tl.int64)) + tl.load(pair) * tl.load(plane + 2)
    target = tl.load(plane + 1).to(tl.pointer_type(tl.int64)) + tl.load(pair + 1) * tl.load(plane + 3)
    word = tl.program_id(2) * WORDS + tl.arange(0, WORDS)
    is_word = word < num_words
    tl.store(target + word, tl.load(source + word, mask=is_word), mask=is_word)
