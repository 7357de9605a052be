"""The KV cache engine: the tensors of both pools, and the moves that the block manager asks for.

One tensor per layer and device. What moves a block copies bytes, a run of neighbouring blocks at a time. A mapping is
checked whole before the first byte moves. Within one device a target must be no source: then reading everything first,
one by one, and all at once come to the same, so a kernel that runs in parallel is right, too.

Moves go to the current stream of the device. A swap has ended when its call returns; a copy is ordered in the stream.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch

from .errors import require_at_least
from .kv_cache_engine_mapping import Mapping, Pool, Run, check_pairs, coalesce, read_pairs
from .kv_layout import KVBlockShape
from .kv_memory import default_device

# Below this a tensor operation costs more than the bytes; above it torch may use several threads.
_SMALL_BYTES = 512 * 1024
# On CUDA each copy is a launch: from so many runs on, gathering and scattering is faster, so many bytes at a time.
_MANY_RUNS = 8
_GATHERED_BYTES = 64 * 1024 * 1024


class Moved(NamedTuple):
    """What a call moved: blocks, the runs they formed, bytes over all layers."""

    num_blocks: int
    num_runs: int
    num_bytes: int


class KVCacheEngine:
    """A GPU pool and a CPU pool of KV blocks, zero at first; main memory is pinned where there is CUDA.

    `gpu_cache` and `cpu_cache` are lists of one typed tensor per layer, in the layout of `shape`. `gpu_memory` and
    `cpu_memory` are the same as flat bytes. Without CUDA, or on request, the GPU pool lies in main memory as well.
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
        self.device = default_device() if device is None else torch.device(device)
        self.gpu_pool, self.cpu_pool = Pool("the GPU pool", num_gpu_blocks), Pool("the CPU pool", num_cpu_blocks)
        host, pinned, layers = torch.device("cpu"), torch.cuda.is_available(), range(num_layers)
        self.gpu_memory = [shape.allocate(num_gpu_blocks, self.device) for _ in layers]
        self.cpu_memory = [shape.allocate(num_cpu_blocks, host, pinned=pinned) for _ in layers]
        self.gpu_cache = [shape.typed(memory) for memory in self.gpu_memory]
        self.cpu_cache = [shape.typed(memory) for memory in self.cpu_memory]
        self._gpu_planes = [plane for memory in self.gpu_memory for plane in shape.planes(memory)]
        self._cpu_planes = [plane for memory in self.cpu_memory for plane in shape.planes(memory)]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return self.num_layers * self.shape.bytes_per_layer()

    def swap_in(self, pairs: Mapping) -> Moved:
        """Copy blocks from the CPU pool to the GPU pool; pairs of ids, each from 0 on in its own pool.

        Raises MappingFormError, BlockOutOfRangeError or DuplicateTargetError; then nothing has moved.
        """
        return self._swap(pairs, self.cpu_pool, self._cpu_planes, self.gpu_pool, self._gpu_planes)

    def swap_out(self, pairs: Mapping) -> Moved:
        """Copy blocks from the GPU pool to the CPU pool; otherwise like `swap_in`."""
        return self._swap(pairs, self.gpu_pool, self._gpu_planes, self.cpu_pool, self._cpu_planes)

    def copy(self, pairs: Mapping) -> Moved:
        """Copy blocks within the GPU pool, each as it was before the call.

        Raises what `swap_in` does, and ChainedCopyError if a target is also a source.
        """
        checked = read_pairs(pairs)
        check_pairs(checked, self.gpu_pool, self.gpu_pool)
        runs = coalesce(checked)
        if self.device.type == "cuda" and len(runs) > _MANY_RUNS:
            _gather_and_scatter(self._gpu_planes, checked.to(self.device))
        else:
            _copy_runs(self._gpu_planes, self._gpu_planes, runs)
        return self._moved(runs)

    def _swap(
        self,
        pairs: Mapping,
        source: Pool,
        source_planes: list[torch.Tensor],
        target: Pool,
        target_planes: list[torch.Tensor],
    ) -> Moved:
        checked = read_pairs(pairs)
        check_pairs(checked, source, target)
        runs = coalesce(checked)
        _copy_runs(source_planes, target_planes, runs)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return self._moved(runs)

    def _moved(self, runs: list[Run]) -> Moved:
        num_blocks = sum(run.length for run in runs)
        return Moved(num_blocks, len(runs), num_blocks * self.block_bytes)


CacheEngine = KVCacheEngine


def _copy_runs(source_planes: list[torch.Tensor], target_planes: list[torch.Tensor], runs: list[Run]) -> None:
    """One copy for each run and plane."""
    for source_plane, target_plane in zip(source_planes, target_planes, strict=True):
        row_bytes = source_plane.shape[1] * source_plane.itemsize
        in_main_memory = source_plane.device.type == target_plane.device.type == "cpu"
        source_start, target_start = source_plane.data_ptr(), target_plane.data_ptr()
        for source, target, length in runs:
            if in_main_memory and length * row_bytes <= _SMALL_BYTES:
                ctypes.memmove(target_start + target * row_bytes, source_start + source * row_bytes, length * row_bytes)
            else:
                blocks = source_plane[source : source + length]
                target_plane[target : target + length].copy_(blocks, non_blocking=True)


def _gather_and_scatter(planes: list[torch.Tensor], pairs: torch.Tensor) -> None:
    """Move all pairs of one device in a few large operations; right because no target is a source."""
    sources, targets = pairs.unbind(1)
    for plane in planes:
        num_rows = max(1, _GATHERED_BYTES // (plane.shape[1] * plane.itemsize))
        for some_sources, some_targets in zip(
            torch.split(sources, num_rows), torch.split(targets, num_rows), strict=True
        ):
            plane.index_copy_(0, some_targets, plane.index_select(0, some_sources))
