"""The numbers of blocks that admission, tables and memory compute.

Each is short, so that it can be proved for every block size. `growth`, which runs for every token, has the same
arithmetic inline, because a call would cost more than the arithmetic.
"""

from fractions import Fraction
from math import floor

from .errors import InvalidValueError, require_at_least


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


def num_gpu_blocks(total_bytes: int, utilization: float, peak_bytes: int, bytes_per_block: int) -> int:
    """floor((total × utilization - peak) / block bytes), at least 0; utilization in (0, 1], taken as a decimal.

    Source: vLLM 0.6, worker/worker.py, determine_num_available_blocks.
    """
    require_at_least("bytes_per_block", bytes_per_block, 1)
    if not 0 < utilization <= 1:
        raise InvalidValueError("utilization", utilization, "it must be above 0 and at most 1")
    # As a decimal: 0.7 of 10 bytes is 7 bytes, and with binary fractions it would be a little less.
    share = floor(total_bytes * Fraction(str(utilization)))
    return num_blocks_that_fit(share - peak_bytes, bytes_per_block)


def num_cpu_blocks(swap_space_bytes: int, bytes_per_block: int) -> int:
    """floor(swap space / block bytes), at least 0. Source: as `num_gpu_blocks`."""
    require_at_least("bytes_per_block", bytes_per_block, 1)
    return num_blocks_that_fit(swap_space_bytes, bytes_per_block)
