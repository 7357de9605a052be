"""How many KV blocks fit: the memory of the device, the use of a model, and the arithmetic.

On CUDA the driver reports the free memory, and torch reports its own use. In main memory, `main_memory` reports what
the system and the limits of the process leave, and the use of the model is the growth of the resident set of the
process.
"""

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import NamedTuple

import torch

from .block_arithmetic import num_blocks_that_fit
from .decoder import SMALL, Decoder, ModelGeometry
from .errors import InvalidValueError, require_at_least
from .kv_layout import block_bytes
from .main_memory import STATUS, available_bytes, bytes_of

Model = Callable[[torch.Tensor], object]

_CLEAR_PEAK = Path("/proc/self/clear_refs")


class MemoryUse(NamedTuple):
    """Bytes of a device, and the largest number of bytes that was in use, by any process, while a model ran."""

    total: int
    peak: int


def default_device() -> torch.device:
    """CUDA if there is a CUDA device, else main memory."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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


def free_bytes(device: torch.device | str | None = None) -> int:
    """Number of bytes that can be taken on the device now."""
    device = default_device() if device is None else torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_bytes()


def num_blocks(bytes_per_block: int, utilization: float = 0.9, device: torch.device | str | None = None) -> int:
    """Number of blocks that fit into this share of the free memory now."""
    return num_gpu_blocks(free_bytes(device), utilization, 0, bytes_per_block)


def measure(model: Callable[[], object], device: torch.device | str | None = None) -> MemoryUse:
    """Run the model once and measure the peak use of memory."""
    device = default_device() if device is None else torch.device(device)
    if device.type != "cuda":
        total = free_bytes(device)
        with suppress(OSError):  # some systems do not let a process reset its peak
            _CLEAR_PEAK.write_text("5")
        before, peak_before = bytes_of(STATUS, "VmRSS"), bytes_of(STATUS, "VmHWM")
        model()
        peak = bytes_of(STATUS, "VmHWM")
        # An old peak that was not exceeded says nothing about this run; what stayed resident is a lower bound.
        return MemoryUse(total, max(0, (peak if peak > peak_before else bytes_of(STATUS, "VmRSS")) - before))
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    model()
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    elsewhere = max(0, total - free - torch.cuda.memory_reserved(device))
    return MemoryUse(total, elsewhere + torch.cuda.max_memory_allocated(device))


def profile_num_available_blocks(
    block_size: int,
    gpu_memory_utilization: float,
    cpu_swap_space: int,
    cache_dtype: str | torch.dtype = "auto",
    *,
    model: Model | None = None,
    geometry: ModelGeometry | None = None,
    num_sequences: int = 256,
    tokens_per_sequence: int = 16,
    device: torch.device | str | None = None,
) -> tuple[int, int]:
    """Return how many GPU and CPU blocks fit beside a model, which is run on dummy data; cpu_swap_space in bytes.

    The model takes int64 token ids [sequences, tokens] on the device and needs a geometry. Without a model a small
    decoder is run, with that geometry or a default one.
    Raises ValueError for a size below 1, a utilization outside (0, 1], an unknown dtype, a model without geometry.
    Source: vLLM 0.6, worker/worker.py, determine_num_available_blocks.
    """
    require_at_least("num_sequences", num_sequences, 1)
    require_at_least("tokens_per_sequence", tokens_per_sequence, 1)
    if geometry is None and model is not None:
        raise InvalidValueError("geometry", geometry, "it is needed to compute the size of a block")
    known = SMALL if geometry is None else geometry
    layers, heads, size = known.num_layers, known.num_kv_heads, known.head_size
    bytes_per_block = block_bytes(
        block_size, layers, heads, size, cache_dtype, latent=known.latent, model_dtype=known.dtype
    )
    num_gpu_blocks(0, gpu_memory_utilization, 0, bytes_per_block)  # a bad utilization is refused before the run
    device = default_device() if device is None else torch.device(device)

    def run() -> object:
        runner = Decoder(known).to(device) if model is None else model
        shape = (num_sequences, tokens_per_sequence)
        token_ids = torch.randint(known.vocabulary_size, shape, dtype=torch.int64, device=device)
        with torch.inference_mode():
            return runner(token_ids)

    use = measure(run, device)
    gpu = num_gpu_blocks(use.total, gpu_memory_utilization, use.peak, bytes_per_block)
    return gpu, num_cpu_blocks(cpu_swap_space, bytes_per_block)
