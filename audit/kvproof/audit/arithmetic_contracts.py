"""Contracts of the arithmetic for CrossHair, which runs the functions themselves on symbolic integers.

The theorems of `kvproof.models.arithmetic` translate the source; CrossHair executes it, as Python does. It therefore
checks the same facts without trusting the translator: `crosshair check` looks for arguments that break a contract, and
`crosshair diffbehavior` for arguments on which the implementation (`implemented_…`) and the specification
(`specified_…`) differ.
Both raise ValueError for arguments out of range.
"""

from types import FunctionType
from typing import Any

from kvproof.impl.admission import AllocStatus, admission, admission_from_host
from kvproof.impl.block_arithmetic import num_blocks_for, num_blocks_that_fit, num_window_blocks
from kvproof.spec.text import admission as specified_admission


def specified(name: str, block_size: int) -> Any:
    """A function of the specification for one block size: its own code, with BLOCK_SIZE bound to that size."""
    names = {**vars(specified_admission), "BLOCK_SIZE": block_size}
    for other, function in vars(specified_admission).items():
        if isinstance(function, FunctionType) and function.__module__ == specified_admission.__name__:
            names[other] = FunctionType(function.__code__, names)
    return names[name]


def check_blocks_for_slots(num_slots: int, block_size: int) -> int:
    """
    pre: num_slots >= 0
    pre: block_size >= 1
    post: __return__ * block_size >= num_slots
    post: (__return__ - 1) * block_size < num_slots
    """
    return num_blocks_for(num_slots, block_size)


def check_blocks_that_fit(num_bytes: int, bytes_per_block: int) -> int:
    """
    pre: bytes_per_block >= 1
    post: __return__ >= 0
    post: __return__ == 0 or __return__ * bytes_per_block <= num_bytes
    post: (__return__ + 1) * bytes_per_block > num_bytes
    """
    return num_blocks_that_fit(num_bytes, bytes_per_block)


def check_window_blocks(sliding_window: int, block_size: int, position: int, read: int) -> int:
    """
    pre: block_size >= 1
    pre: 0 <= read <= position < read + sliding_window
    post: position // block_size - read // block_size + 1 <= __return__
    """
    return num_window_blocks(sliding_window, block_size)


def check_admission(num_required: int, num_free: int, num_usable: int, watermark_blocks: int) -> AllocStatus:
    """
    pre: 0 <= num_required
    pre: 0 <= num_free <= num_usable
    pre: 0 <= watermark_blocks
    post: __return__ is not AllocStatus.OK or num_required + watermark_blocks <= num_free
    post: __return__ is not AllocStatus.NEVER or num_required > num_usable - watermark_blocks
    post: __return__ is not AllocStatus.LATER or num_free < num_usable
    """
    return admission(num_required, num_free, num_usable, watermark_blocks)


def check_admission_from_host(
    num_needed: int, num_free: int, num_usable: int, watermark_blocks: int, is_idle: bool
) -> AllocStatus:
    """
    pre: 0 <= num_needed
    pre: 0 <= num_free <= num_usable
    pre: 0 <= watermark_blocks
    pre: not is_idle or num_free == num_usable
    post: __return__ is not AllocStatus.OK or num_needed <= num_free
    post: (__return__ is AllocStatus.NEVER) == (num_needed > num_usable)
    post: __return__ is not AllocStatus.LATER or not is_idle
    """
    return admission_from_host(num_needed, num_free, num_usable, watermark_blocks, is_idle)


def specified_blocks(num_slots: int, block_size: int) -> int:
    """The number of blocks for so many slots, by the specification."""
    if num_slots < 0 or block_size < 1:
        raise ValueError
    blocks: int = specified("blocks_for", block_size)(num_slots)
    return blocks


def implemented_blocks(num_slots: int, block_size: int) -> int:
    """The number of blocks for so many slots, by the implementation."""
    if num_slots < 0 or block_size < 1:
        raise ValueError
    return num_blocks_for(num_slots, block_size)


def specified_answer(num_required: int, num_free: int, num_reserved: int, watermark_blocks: int) -> str:
    """The answer that the specification allows for a prompt in an idle pool."""
    if min(num_required, num_free, num_reserved, watermark_blocks) < 0:
        raise ValueError
    if specified_admission.may_answer_ok(num_required, num_free, watermark_blocks):
        return "OK"
    pool = num_free + num_reserved
    return (
        "NEVER" if specified_admission.may_end_for_good(num_required, num_reserved, watermark_blocks, pool) else "LATER"
    )


def implemented_answer(num_required: int, num_free: int, num_reserved: int, watermark_blocks: int) -> str:
    """The implementation's answer for a prompt in an idle pool."""
    if min(num_required, num_free, num_reserved, watermark_blocks) < 0:
        raise ValueError
    return admission(num_required, num_free, num_free, watermark_blocks).name
