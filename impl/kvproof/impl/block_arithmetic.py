"""How many blocks: the small numbers that admission, tables and memory reckon with.

Each is one line with a name, so that it can be proved for every block size. `growth`, which runs for every token, has
the same arithmetic in place, where a call would cost more than the sum.
"""

from __future__ import annotations


def num_blocks_for(num_slots: int, block_size: int) -> int:
    """Blocks that hold so many slots."""
    return -(-num_slots // block_size)


def num_window_blocks(sliding_window: int, block_size: int) -> int:
    """Whole blocks before the newest computed token that a window of so many tokens may need, with some to spare."""
    return sliding_window // block_size + 2


def num_blocks_that_fit(num_bytes: int, bytes_per_block: int) -> int:
    """The most blocks that so many bytes hold; none where the bytes are fewer than nothing."""
    return max(0, num_bytes // bytes_per_block)
