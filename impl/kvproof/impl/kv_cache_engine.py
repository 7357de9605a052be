"""The KV cache engine: the tensors of both pools, and the moves that the block manager requests.

There is one tensor per layer and device. `block_mover` copies bytes, one run of neighbouring blocks at a time. The
whole mapping is checked before the first byte moves. Within one device no target may be a source. Then the result does
not depend on the order of the copies, so a kernel that makes them in parallel is right too.

Moves are issued to the current stream of the device. A swap is complete when its call returns; a copy is ordered in the
stream.
"""

import torch

from .block_mover import BlockMover, Moved
from .errors import require_at_least
from .kv_layout import KVBlockShape
from .kv_memory import default_device

__all__ = ["CacheEngine", "KVCacheEngine", "Moved"]


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
