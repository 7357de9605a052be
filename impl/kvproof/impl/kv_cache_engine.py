"""The KV cache engine: the tensors of both pools, and the moves that the block manager requests.

There is one tensor per layer and device. `BlockMover` copies bytes, one run of neighbouring blocks at a time. The
whole mapping is checked before the first byte moves. Within one device no target may be a source. Then the result does
not depend on the order of the copies, so a kernel that makes them in parallel is right too.

Moves are issued to the current stream of the device. A swap is complete when its call returns; a copy is ordered in the
stream. On CUDA many small copies are one kernel (`row_copier`). In main memory a small copy is one call of the C
library, because a tensor operation would take as long as copying the bytes of a small block.

A run is a sequence of pairs in which source and target both increase by one; one copy moves it. No two pairs have the
same target, so in the order of targets the pairs of a run are neighbours, and cutting between them gives the smallest
number of runs. That order also shows a target that is named twice, so one pass does everything. A step moves a few
blocks, long after the step before. For these, plain Python on integers is several times faster than tensor operations,
whose code has to be loaded into the cache first, and it is not slower for thousands of blocks.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

import torch

from .errors import (
    BlockManagerError,
    BlockOutOfRangeError,
    ChainedCopyError,
    DuplicateTargetError,
    InvalidValueError,
    MappingFormError,
    require_at_least,
)
from .kv_layout import KVBlockShape
from .kv_memory import default_device
from .row_copier import row_copier

Pair = tuple[int, int]  # source, target
Mapping = torch.Tensor | Iterable[Pair]
_TARGET = itemgetter(1)
_INT64_MAX = 2**63 - 1


class Pool(NamedTuple):
    """The name and size of a pool, against which a mapping is checked."""

    name: str
    num_blocks: int


class Run(NamedTuple):
    """Neighbouring blocks that one copy moves."""

    source: int
    target: int
    length: int


def read_pairs(mapping: Mapping) -> list[Pair]:
    """Return the pairs of an int64 tensor of shape [n, 2], or of a list. Raises MappingFormError."""
    if isinstance(mapping, torch.Tensor):
        if mapping.dtype != torch.int64 or mapping.dim() != 2 or mapping.shape[1] != 2:
            raise MappingFormError(f"a {mapping.dtype} tensor of shape {list(mapping.shape)}")
        return [(source, target) for source, target in mapping.tolist()]
    if not isinstance(mapping, Iterable):
        raise MappingFormError(mapping)
    pairs = list(mapping)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise MappingFormError(pair)
        source, target = pair
        if type(source) is not int or type(target) is not int:
            raise MappingFormError(pair)
        if not -_INT64_MAX <= source <= _INT64_MAX or not -_INT64_MAX <= target <= _INT64_MAX:
            raise MappingFormError(pairs)
    return pairs


def runs_of(pairs: Sequence[Pair], source: Pool, target: Pool) -> list[Run]:
    """Return the smallest list of runs that moves these blocks, in the order of targets; there is at least one pair.

    Raises BlockOutOfRangeError, DuplicateTargetError and, within one pool, ChainedCopyError if a target is a source.
    """
    num_sources, num_targets = source.num_blocks, target.num_blocks
    ordered = sorted(pairs, key=_TARGET)
    runs = []
    first_read, first_written = ordered[0]
    length, last = 0, -1
    for read, written in ordered:
        if not 0 <= read < num_sources or not last < written < num_targets:
            raise _refusal(pairs, source, target)
        if read != first_read + length or written != first_written + length:
            runs.append(Run(first_read, first_written, length))
            first_read, first_written, length = read, written, 0
        length, last = length + 1, written
    runs.append(Run(first_read, first_written, length))
    if source == target and not {written for _, written in pairs}.isdisjoint([read for read, _ in pairs]):
        raise _chain(pairs, source)
    return runs


def _refusal(pairs: Sequence[Pair], source: Pool, target: Pool) -> BlockManagerError:
    """Return the error: the first id outside its pool, sources first, else a target that is named twice."""
    for column, pool in enumerate((source, target)):
        for pair in pairs:
            if not 0 <= pair[column] < pool.num_blocks:
                return BlockOutOfRangeError(pair[column], pool.name, pool.num_blocks, (pair[0], pair[1]))
    twice = min(block for block, count in Counter(map(_TARGET, pairs)).items() if count > 1)
    return DuplicateTargetError(twice, target.name, [read for read, written in pairs if written == twice])


def _chain(pairs: Sequence[Pair], pool: Pool) -> ChainedCopyError:
    """Return the error for the first pair that reads a block that another one writes."""
    writers = {written: (read, written) for read, written in pairs}
    reader = next((read, written) for read, written in pairs if read in writers)
    return ChainedCopyError(reader[0], pool.name, writers[reader[0]], reader)


# From this size on the cost of a tensor operation does not matter, and torch may use several threads.
_LARGE_BYTES = 512 * 1024
# On CUDA each copy of a run in a plane is a call of the driver: beyond this number, one kernel for all is faster. Over
# the bus a call takes longer to move its bytes than to be made.
_MANY_COPIES, _MANY_COPIES_OVER_THE_BUS = 4, 32
# Without the kernel, blocks within the GPU pool are gathered and scattered, in pieces of this size.
_GATHERED_BYTES = 64 * 1024 * 1024

Planes = Sequence[torch.Tensor]


class Moved(NamedTuple):
    """The size of a move: blocks, runs, and bytes over all planes."""

    num_blocks: int
    num_runs: int
    num_bytes: int


NOTHING_MOVED = Moved(0, 0, 0)


class BlockMover:
    """Moves blocks between planes of a GPU pool and planes of a CPU pool, and within the first.

    A pool is a list of *planes*, tensors of shape `[blocks, words]`; moving a block means moving its row in every
    plane. The rows of a plane may lie apart, for example if all layers of a block are side by side; then each block of
    a run is a copy of its own.

    Both have the same number of planes, at least one, and rows of the same number of words; within a pool all planes
    have the same number of blocks. The words of a row are contiguous. Raises InvalidValueError otherwise.
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
        """Copy blocks from the CPU pool to the GPU pool; pairs of ids, each counted from 0 in its pool.

        Raises MappingFormError, BlockOutOfRangeError or DuplicateTargetError; then nothing has moved.
        """
        return self._swap(pairs, self.cpu_pool, self.gpu_pool, self._in)

    def swap_out(self, pairs: Mapping) -> Moved:
        """Copy blocks from the GPU pool to the CPU pool; the rest is as for `swap_in`."""
        return self._swap(pairs, self.gpu_pool, self.cpu_pool, self._out)

    def copy(self, pairs: Mapping) -> Moved:
        """Copy blocks within the GPU pool; every source is read as it was before the call.

        Raises what `swap_in` does, and ChainedCopyError if a target is also a source.
        """
        read = read_pairs(pairs)
        if not len(read):  # the usual case
            return NOTHING_MOVED
        runs = runs_of(read, self.gpu_pool, self.gpu_pool)
        if self.device.type == "cuda" and self._within.has_many(runs) and self._within.copier is None:
            _gather_and_scatter(self._gpu_planes, torch.tensor(read).to(self.device))
        else:
            self._within.move(runs)
        return self._moved(read, runs)

    def _swap(self, pairs: Mapping, source: Pool, target: Pool, route: _Route) -> Moved:
        read = read_pairs(pairs)
        if not len(read):  # the usual case
            return NOTHING_MOVED
        runs = runs_of(read, source, target)
        route.move(runs)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return self._moved(read, runs)

    def _moved(self, pairs: Sequence[Pair], runs: Sequence[Run]) -> Moved:
        return Moved(len(pairs), len(runs), len(pairs) * self._block_bytes)


def _require_alike(gpu_planes: Planes, cpu_planes: Planes) -> None:
    if not gpu_planes or len(gpu_planes) != len(cpu_planes):
        raise InvalidValueError(
            "cpu_planes", len(cpu_planes), f"there are {len(gpu_planes)} GPU planes, and both pools need at least one"
        )
    for name, planes in (("gpu_planes", gpu_planes), ("cpu_planes", cpu_planes)):
        for plane in planes:
            if plane.dim() != 2 or plane.stride(1) != 1 or plane.shape[0] != planes[0].shape[0]:
                raise InvalidValueError(
                    name, list(plane.shape), "each plane must have the shape [blocks, words] and contiguous rows"
                )
    for gpu, cpu in zip(gpu_planes, cpu_planes, strict=True):
        if (gpu.shape[1], gpu.dtype) != (cpu.shape[1], cpu.dtype):
            raise InvalidValueError(
                "cpu_planes", list(cpu.shape), f"its rows must be as long as those of {list(gpu.shape)}"
            )


class _Route:
    """The moves from the planes of one pool to those of another, or of the same."""

    def __init__(self, source_planes: Planes, target_planes: Planes) -> None:
        pairs = list(zip(source_planes, target_planes, strict=True))
        in_memory = [pair for pair in pairs if pair[0].device.type == pair[1].device.type == "cpu"]
        self._between_devices = [pair for pair in pairs if not pair[0].device.type == pair[1].device.type == "cpu"]
        self._is_over_the_bus = source_planes[0].device != target_planes[0].device
        self.copier = row_copier(source_planes, target_planes)
        # If nothing lies between the rows, a run is one copy; else each of its blocks is.
        self._together = [_Rows(*pair) for pair in in_memory if all(map(_lies_together, pair))]
        self._apart = [_Rows(*pair) for pair in in_memory if not all(map(_lies_together, pair))]

    def has_many(self, runs: Sequence[Run]) -> bool:
        """Whether the runs are more copies between devices than the driver should be called for."""
        most = _MANY_COPIES_OVER_THE_BUS if self._is_over_the_bus else _MANY_COPIES
        return len(runs) * len(self._between_devices) > most

    def move(self, runs: Sequence[Run]) -> None:
        """Move the blocks of the runs in every plane."""
        if self.copier is not None and self.has_many(runs):
            self.copier.move([(run.source + k, run.target + k) for run in runs for k in range(run.length)])
            return
        for source_plane, target_plane in self._between_devices:
            _copy_slices(source_plane, target_plane, runs)
        for plane in self._together:
            if large := [run for run in runs if run.length > plane.large_rows]:
                _copy_slices(plane.source, plane.target, large)
                plane.copy(run for run in runs if run.length <= plane.large_rows)
            else:
                plane.copy(runs)
        if self._apart:
            rows = [Run(run.source + k, run.target + k, 1) for run in runs for k in range(run.length)]
            for plane in self._apart:
                plane.copy(rows)


class _Rows:
    """Rows of two planes in main memory that the C library copies."""

    def __init__(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self.source, self.target = source, target
        self._row_bytes = target.shape[1] * target.itemsize
        self.large_rows = _LARGE_BYTES // max(1, self._row_bytes)
        self._steps = source.stride(0) * source.itemsize, target.stride(0) * target.itemsize

    def copy(self, runs: Iterable[Run]) -> None:
        """Copy `num_rows` rows, from each source row to its target row."""
        row_bytes, (source_step, target_step) = self._row_bytes, self._steps
        from_, to, move = self.source.data_ptr(), self.target.data_ptr(), ctypes.memmove
        for source, target, length in runs:
            move(to + target * target_step, from_ + source * source_step, length * row_bytes)


def _lies_together(plane: torch.Tensor) -> bool:
    """Whether nothing lies between the rows."""
    return plane.stride(0) == plane.shape[1]


def _copy_slices(source_plane: torch.Tensor, target_plane: torch.Tensor, runs: Iterable[Run]) -> None:
    for source, target, length in runs:
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


class KVCacheEngine(BlockMover):
    """A GPU pool and a CPU pool of KV blocks, zero at first; the CPU pool is pinned if the GPU pool is CUDA's.

    `gpu_cache` and `cpu_cache` are lists of one typed tensor per layer, in the layout of `shape`. `gpu_memory` and
    `cpu_memory` are the same memory as flat bytes. Without CUDA, or on request, the GPU pool is in main memory too.
    Raises ValueError for fewer than one layer or a negative number of blocks.
    Source: vLLM 0.6, worker/cache_engine.py, CacheEngine.
    """

    def __init__(
        self,
        shape: KVBlockShape,
        num_layers: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int,
        device: torch.device | str | None = None,
    ) -> None:
        require_at_least("num_layers", num_layers, 1)
        require_at_least("num_gpu_blocks", num_gpu_blocks, 0)
        require_at_least("num_cpu_blocks", num_cpu_blocks, 0)
        self.shape, self.num_layers = shape, num_layers
        gpu = default_device() if device is None else torch.device(device)
        host, pinned, layers = torch.device("cpu"), gpu.type == "cuda", range(num_layers)
        self.gpu_memory = [shape.allocate(num_gpu_blocks, gpu) for _ in layers]
        self.cpu_memory = [shape.allocate(num_cpu_blocks, host, pinned=pinned) for _ in layers]
        self.gpu_cache = [shape.typed(memory) for memory in self.gpu_memory]
        self.cpu_cache = [shape.typed(memory) for memory in self.cpu_memory]
        super().__init__(
            [plane for memory in self.gpu_memory for plane in shape.planes(memory)],
            [plane for memory in self.cpu_memory for plane in shape.planes(memory)],
        )

    @property
    def block_bytes(self) -> int:
        """Number of bytes of one block over all layers."""
        return self.num_layers * self.shape.bytes_per_layer()


CacheEngine = KVCacheEngine
