"""Many rows at once, by one kernel on a GPU: scattered blocks of a GPU pool, and of a pinned CPU pool.

`cudaMemcpyAsync` moves 50 GB/s between a pinned pool and an H200 if a call has a megabyte, and 1 GB/s if it has 16 KiB,
because each call costs some microseconds of the host. The kernel moves all rows of all planes with one launch, and the
GPU itself reads and writes the pinned memory over the bus. It keeps multiprocessors busy, which copies do not, so a few
large copies are left to `cudaMemcpyAsync`.

Triton compiles the kernel, which needs a C compiler and a matching driver. So it is tried on a few rows when the first
copier of a device is made. Without it `row_copier` returns None, and the caller copies in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

_WORDS_MAX = 1024  # words of a row that one program copies
_WORD_BYTES, _WIDE_BYTES = 8, 16
_AXIS_MAX = 65_535  # programs along the second and third axis of a grid

Planes = Sequence[torch.Tensor]


class RowCopier:
    """Copies rows from source planes to target planes with one kernel, on the current stream of the device."""

    def __init__(self, sources: Planes, targets: Planes, device: torch.device) -> None:
        from .row_kernel import copy_rows

        self._kernel: Any = copy_rows
        self._device = device
        self._num_words = sources[0].shape[1] * sources[0].itemsize // _WORD_BYTES
        self._tile = min(1 << (self._num_words - 1).bit_length(), _WORDS_MAX)
        table = [
            [source.data_ptr(), target.data_ptr(), _step_bytes(source), _step_bytes(target)]
            for source, target in zip(sources, targets, strict=True)
        ]
        self._is_wide = not any(number % _WIDE_BYTES for plane in table for number in plane)
        self._planes = torch.tensor(table, dtype=torch.int64, device=device)

    def move(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy the row of each pair's source to that of its target, in every plane; no target may be a source."""
        is_cuda = self._device.type == "cuda"
        rows = torch.tensor(pairs, dtype=torch.int64, pin_memory=is_cuda).to(self._device, non_blocking=True)
        grid = len(rows), len(self._planes), -(-self._num_words // self._tile)
        # Triton launches on the current device, which may be another one.
        with torch.cuda.device(self._device) if is_cuda else nullcontext():
            self._kernel[grid](self._planes, rows, self._num_words, WORDS=self._tile, IS_WIDE=self._is_wide)


def row_copier(sources: Planes, targets: Planes) -> RowCopier | None:
    """A copier between these planes of shape `[rows, words]`; None if the kernel cannot copy them.

    It can if a plane of each pair is on one CUDA device and the other one there too or in pinned memory, and rows are
    whole words of 8 bytes.
    """
    planes = [*sources, *targets]
    devices = {plane.device for plane in planes if plane.device.type == "cuda"}
    if len(devices) != 1 or not all(map(_has_whole_words, planes)):
        return None
    num_tiles = -(-planes[0].shape[1] * planes[0].itemsize // (_WORD_BYTES * _WORDS_MAX))
    if len(sources) > _AXIS_MAX or num_tiles > _AXIS_MAX:
        return None
    (device,) = devices
    if not all(plane.device == device or plane.is_pinned() for plane in planes) or refusal(device):
        return None
    return RowCopier(sources, targets, device)


@cache
def refusal(device: torch.device) -> str:
    """Why the kernel is not used on this device; empty if it is. It is tried once, with three rows in two planes."""
    if find_spec("triton") is None:
        return "triton cannot be imported"
    sources = [torch.arange(first, first + 20, dtype=torch.int64, device=device).view(4, 5) for first in (0, 100)]
    targets = [torch.zeros_like(source) for source in sources]
    try:
        RowCopier(sources, targets, device).move([(1, 3), (2, 0), (0, 1)])
        copied = [target.tolist() for target in targets]
    except Exception as error:  # a compiler, a linker or a driver may raise anything
        return f"the kernel failed in a trial: {f'{type(error).__name__}: {error}'.splitlines()[0]}"
    wanted = [[rows[2], rows[0], [0] * 5, rows[1]] for rows in (source.tolist() for source in sources)]
    return "" if copied == wanted else "the kernel copied wrong rows in a trial"


def _step_bytes(plane: torch.Tensor) -> int:
    return plane.stride(0) * plane.itemsize


def _has_whole_words(plane: torch.Tensor) -> bool:
    """Whether every row begins at a multiple of a word and has whole words."""
    sizes = plane.shape[1] * plane.itemsize, _step_bytes(plane), plane.data_ptr()
    return plane.shape[1] > 0 and not any(size % _WORD_BYTES for size in sizes)
