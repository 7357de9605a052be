"""LMCache's paged allocator as a subject of pool level: releases 0.5.2 to 0.5.6.

`PagedTensorMemoryAllocator` and its memory objects (`TensorMemoryObj`) are the release's own; the numbers of blocks are
the addresses of the objects. A page has one byte. References are counted by the object: the last `ref_count_down` gives
the page back. A count that falls below zero is reported in the log and set back to zero, and in LMCache's other
allocators the memory is then not taken back again, because its object is no longer valid; so a pool of this kind must
ignore a double free. Counts are not shown, because a free page has the count of its last owner, or one at first.
"""

from typing import Any

import torch

from kvproof.check.protocol.manager import Assumption, Capabilities, Observation, Refused
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.subjects.lmcache.l1 import silent_logger
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.loading.stub_modules import StubObject, mount_real, nothing

OBJECTS, ALLOCATOR = "v1.memory_management", "v1.memory_allocators.paged_tensor_memory_allocator"
SHAPE, DTYPE = torch.Size([1]), torch.uint8


class Monitor:
    """The statistics, which nobody reads here."""

    update_local_cache_usage = update_active_memory_objs_count = staticmethod(nothing)

    @staticmethod
    def GetOrCreate() -> "Monitor":  # noqa: N802
        """The one monitor."""
        return Monitor()


def undecorated(function: Any) -> Any:
    """A decorator that measures nothing."""
    return function


def size_in_bytes(shapes: list[torch.Size], dtypes: list[torch.dtype]) -> int:
    """`get_size_bytes`: the bytes of so many tensors."""
    return sum(shape.numel() * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True))


STAND_INS: dict[str, dict[str, Any]] = {
    "": {"device_ops": None, "torch_dev": StubObject(), "torch_device_type": "cpu"},
    "logging": {"init_logger": silent_logger},
    "observability": {"LMCStatsMonitor": Monitor},
    "integration.vllm.utils": {"get_size_bytes": size_in_bytes},
    "utils": {"_lmcache_nvtx_annotate": undecorated, "get_size_bytes": size_in_bytes},
}


class LMCacheAllocator:
    """`PagedTensorMemoryAllocator`."""

    capabilities = Capabilities(fork=True, ignores_double_free=True)
    assumptions: tuple[Assumption, ...] = (
        Assumption("shares-what-it-holds", "The caller counts references up only while it holds the object."),
    )

    def __init__(self, version: str) -> None:
        self.name = f"lmcache-allocator {version}"
        folder = download.find("lmcache", version)
        module = mount_real("lmcache", folder / "lmcache", (OBJECTS, ALLOCATOR), STAND_INS)
        self._class = module(ALLOCATOR).PagedTensorMemoryAllocator

    def open(self, config: PoolConfig) -> None:
        self._allocator: Any = self._class(torch.zeros(config.num_gpu_blocks, dtype=DTYPE), [SHAPE], [DTYPE])
        self._objects = {one.meta.address: one for one in self._allocator.free_blocks}

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        objects = self._allocator.batched_allocate(SHAPE, DTYPE, num_blocks)
        return Refused() if objects is None else [one.meta.address for one in objects]

    def share(self, blocks: list[int]) -> None:
        for block in blocks:
            self._objects[block].ref_count_up()

    def free(self, blocks: list[int]) -> None:
        for block in blocks:
            self._objects[block].ref_count_down()

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        """It has no prefix cache."""

    def find(self, pages: list[int]) -> list[int]:
        """It has no prefix cache."""
        return []

    def reset_cache(self) -> bool:
        """It has no prefix cache."""
        return False

    def observe(self) -> Observation:
        ids = [one.meta.address for one in self._allocator.free_blocks]
        return Observation({}, (len(ids), 0), free_ids=ids)
