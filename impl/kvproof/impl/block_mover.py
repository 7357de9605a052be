"""Moving blocks between two pools, and within the first: a run of neighbouring blocks is one copy.

A pool is seen as *planes*, tensors `[blocks, words]`; moving a block means moving its row in every plane. Rows may lie
apart in a plane, as where all layers of a block are side by side; then each block of a run is a copy of its own.

In main memory a small copy is one call of the C library, and all of them are handed to the interpreter's own loop,
because Python code between two copies would take as long as the bytes of a small block.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from .errors import InvalidValueError
from .kv_cache_engine_mapping import Mapping, Pairs, Pool, Runs, checked_by_target, coalesce, read_pairs

# From so many bytes on a tensor operation costs nothing beside the bytes; torch may use several threads for it.
_LARGE_BYTES = 512 * 1024
# On CUDA each copy is a launch: from so many runs on, gathering and scattering is faster, so many bytes at a time.
_MANY_RUNS = 8
_GATHERED_BYTES = 64 * 1024 * 1024

Planes = Sequence[torch.Tensor]
_PlanePair = tuple[torch.Tensor, torch.Tensor]  # of the source pool, of the target pool


class Moved(NamedTuple):
    """What a call moved: blocks, the runs they formed, bytes over all planes."""

    num_blocks: int
    num_runs: int
    num_bytes: int


NOTHING_MOVED = Moved(0, 0, 0)


class BlockMover:
    """Moves blocks between planes of a GPU pool and planes of a CPU pool.

    Both have the same number of planes, at least one, and rows of the same number of words; within a pool all planes
    have the same number of blocks. Words of a row lie side by side. Raises InvalidValueError otherwise.
    """

    def __init__(self, gpu_planes: Planes, cpu_planes: Planes) -> None:
        _require_alike(gpu_planes, cpu_planes)
        self.device = gpu_planes[0].device
        self.gpu_pool = Pool("the GPU pool", gpu_planes[0].shape[0])
        self.cpu_pool = Pool("the CPU pool", cpu_planes[0].shape[0])
        self._gpu_planes = list(gpu_planes)
        self._in, self._out = _Route(cpu_planes, gpu_planes), _Route(gpu_planes, cpu_planes)
        self._within = _Route(gpu_planes, gpu_planes)
        self._block_bytes = sum(plane.shape[1] * plane.itemsize for plane in gpu_planes)

    def swap_in(self, pairs: Mapping) -> Moved:
        """Copy blocks from the CPU pool to the GPU pool; pairs of ids, each from 0 on in its own pool.

        Raises MappingFormError, BlockOutOfRangeError or DuplicateTargetError; then nothing has moved.
        """
        return self._swap(pairs, self.cpu_pool, self.gpu_pool, self._in)

    def swap_out(self, pairs: Mapping) -> Moved:
        """Copy blocks from the GPU pool to the CPU pool; otherwise like `swap_in`."""
        return self._swap(pairs, self.gpu_pool, self.cpu_pool, self._out)

    def copy(self, pairs: Mapping) -> Moved:
        """Copy blocks within the GPU pool, each as it was before the call.

        Raises what `swap_in` does, and ChainedCopyError if a target is also a source.
        """
        read = read_pairs(pairs)
        if not len(read):  # as in most steps
            return NOTHING_MOVED
        checked = checked_by_target(read, self.gpu_pool, self.gpu_pool)
        runs = coalesce(checked)
        if self.device.type == "cuda" and len(runs) > _MANY_RUNS:
            _gather_and_scatter(self._gpu_planes, torch.from_numpy(checked).to(self.device))
        else:
            self._within.move(checked, runs)
        return self._moved(checked, runs)

    def _swap(self, pairs: Mapping, source: Pool, target: Pool, route: _Route) -> Moved:
        read = read_pairs(pairs)
        if not len(read):  # as in most steps
            return NOTHING_MOVED
        checked = checked_by_target(read, source, target)
        runs = coalesce(checked)
        route.move(checked, runs)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return self._moved(checked, runs)

    def _moved(self, pairs: Pairs, runs: Runs) -> Moved:
        return Moved(len(pairs), len(runs), len(pairs) * self._block_bytes)


def _require_alike(gpu_planes: Planes, cpu_planes: Planes) -> None:
    if not gpu_planes or len(gpu_planes) != len(cpu_planes):
        raise InvalidValueError("cpu_planes", len(cpu_planes), f"there are {len(gpu_planes)} GPU planes; both need one")
    for name, planes in (("gpu_planes", gpu_planes), ("cpu_planes", cpu_planes)):
        for plane in planes:
            if plane.dim() != 2 or plane.stride(1) != 1 or plane.shape[0] != planes[0].shape[0]:
                raise InvalidValueError(name, list(plane.shape), "each plane must be [blocks, words], words together")
    for gpu, cpu in zip(gpu_planes, cpu_planes, strict=True):
        if (gpu.shape[1], gpu.dtype) != (cpu.shape[1], cpu.dtype):
            raise InvalidValueError("cpu_planes", list(cpu.shape), f"its rows must be as those of {list(gpu.shape)}")


class _Route:
    """From the planes of one pool to those of another, or of the same."""

    def __init__(self, source_planes: Planes, target_planes: Planes) -> None:
        pairs = list(zip(source_planes, target_planes, strict=True))
        in_memory = [pair for pair in pairs if pair[0].device.type == pair[1].device.type == "cpu"]
        self._between_devices = [pair for pair in pairs if not pair[0].device.type == pair[1].device.type == "cpu"]
        # Where nothing lies between the rows, a run is one copy; else each of its blocks is.
        self._together = _Rows([pair for pair in in_memory if all(map(_lies_together, pair))])
        self._apart = _Rows([pair for pair in in_memory if not all(map(_lies_together, pair))])

    def move(self, pairs: Pairs, runs: Runs) -> None:
        """Move the pairs, or what is the same, the runs, in every plane."""
        for source_plane, target_plane in self._between_devices:
            _copy_slices(source_plane, target_plane, runs)
        if self._together.planes:
            is_large = runs[:, 2] > self._together.large_rows
            if is_large.any():
                for source_plane, target_plane in self._together.planes:
                    _copy_slices(source_plane, target_plane, runs[is_large])
                runs = runs[~is_large]
            self._together.copy(runs)
        if self._apart.planes:
            self._apart.copy(np.column_stack((pairs, np.ones(len(pairs), np.int64))))


class _Rows:
    """Rows in main memory that the C library copies: all planes in one go."""

    def __init__(self, planes: Sequence[_PlanePair]) -> None:
        self.planes = planes
        row_bytes = [target.shape[1] * target.itemsize for _, target in planes]
        self.large_rows = _LARGE_BYTES // max([1, *row_bytes])
        self._row_bytes = np.array(row_bytes, np.int64)[:, None]
        steps = [[plane.stride(0) * plane.itemsize for plane in pair] for pair in planes]
        self._steps = np.array(steps, np.int64).reshape(-1, 2, 1)

    def copy(self, runs: Runs) -> None:
        """From each source row to its target row, so many rows."""
        sources, targets, lengths = runs.T
        starts = np.array([(source.data_ptr(), target.data_ptr()) for source, target in self.planes], np.int64)
        from_ = starts[:, :1] + self._steps[:, 0] * sources
        to = starts[:, 1:] + self._steps[:, 1] * targets
        num_bytes = self._row_bytes * lengths
        deque(map(ctypes.memmove, to.ravel().tolist(), from_.ravel().tolist(), num_bytes.ravel().tolist()), maxlen=0)


def _lies_together(plane: torch.Tensor) -> bool:
    """Whether nothing lies between the rows."""
    return plane.stride(0) == plane.shape[1]


def _copy_slices(source_plane: torch.Tensor, target_plane: torch.Tensor, runs: Runs) -> None:
    for source, target, length in runs.tolist():
        blocks = source_plane[source : source + length]
        target_plane[target : target + length].copy_(blocks, non_blocking=True)


def _gather_and_scatter(planes: Planes, pairs: torch.Tensor) -> None:
    """Move all pairs of one device in a few large operations; right because no target is a source."""
    sources, targets = pairs.unbind(1)
    for plane in planes:
        num_rows = max(1, _GATHERED_BYTES // (plane.shape[1] * plane.itemsize))
        for some_sources, some_targets in zip(
            torch.split(sources, num_rows), torch.split(targets, num_rows), strict=True
        ):
            plane.index_copy_(0, some_targets, plane.index_select(0, some_sources))
