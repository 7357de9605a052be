"""The numbers of blocks that admission, tables and memory compute.

Each is a function of one line, so that it can be proved for every block size. `growth`, which runs for every token, has
the same arithmetic inline, because a call would cost more than the arithmetic.
"""


def num_blocks_for(num_slots: int, block_size: int) -> int:
    """Number of blocks that hold `num_slots` slots."""
    return -(-num_slots // block_size)


def num_window_blocks(sliding_window: int, block_size: int) -> int:
    """Number of blocks before that of the newest computed token that a window may need, rounded up generously.

    Source: vLLM 0.9, vllm/core/block_manager.py, max_block_sliding_window.
    """
    return sliding_window // block_size + 2


def num_blocks_that_fit(num_bytes: int, bytes_per_block: int) -> int:
    """The largest number of blocks that fit into these bytes; 0 if the number of bytes is negative."""
    return max(0, num_bytes // bytes_per_block)
