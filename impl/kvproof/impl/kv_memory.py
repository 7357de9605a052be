"""How many KV blocks fit: the memory of the device, the use of a model, and the arithmetic.

On CUDA the driver reports the free memory, and torch reports its own use. In main memory, what is
free is what the system has available and the limits of the process leave, and the use of the model is the growth of the
resident set of the process. A small decoder with random weights serves where there is no model.

A limit is set by a control group, that of the process or one above it, in version 1 or 2 of the interface, or by
`ulimit -v` on addresses. A group is also charged for files that the system keeps in its cache. Those that were not used
recently are dropped when memory is needed, so they count as free.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from .block_arithmetic import num_cpu_blocks, num_gpu_blocks
from .errors import InvalidValueError, require_at_least
from .kv_layout import block_bytes


@dataclass(frozen=True)
class ModelGeometry:
    """The sizes of a model that the KV cache depends on; head_size in elements, num_kv_heads per rank."""

    num_layers: int
    num_kv_heads: int
    head_size: int
    dtype: torch.dtype
    vocabulary_size: int = 1000
    latent: bool = False


SMALL = ModelGeometry(num_layers=2, num_kv_heads=2, head_size=32, dtype=torch.float32)


class Decoder(nn.Module):
    """Token ids [sequences, tokens] to logits [sequences, tokens, vocabulary], with grouped-query attention."""

    def __init__(self, geometry: ModelGeometry = SMALL, queries_per_kv_head: int = 2) -> None:
        super().__init__()
        width = geometry.num_kv_heads * queries_per_kv_head * geometry.head_size
        self.embedding = nn.Embedding(geometry.vocabulary_size, width)
        self.layers = nn.ModuleList(_Layer(geometry, width) for _ in range(geometry.num_layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, geometry.vocabulary_size, bias=False)
        self.to(geometry.dtype).requires_grad_(False)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.embedding(token_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits


class _Layer(nn.Module):
    def __init__(self, geometry: ModelGeometry, width: int) -> None:
        super().__init__()
        self.sizes = [width, *[geometry.num_kv_heads * geometry.head_size] * 2]
        self.head_size = geometry.head_size
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, sum(self.sizes), bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.attention_norm(hidden)).split(self.sizes, dim=-1)
        query, key, value = (part.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        hidden = hidden + self.output(attended.transpose(1, 2).flatten(2))
        changed: torch.Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return changed


Model = Callable[[torch.Tensor], object]

_CLEAR_PEAK = Path("/proc/self/clear_refs")


class MemoryUse(NamedTuple):
    """Bytes of a device, and the largest number of bytes that was in use, by any process, while a model ran."""

    total: int
    peak: int


def default_device() -> torch.device:
    """CUDA if there is a CUDA device, else main memory."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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


MEMINFO, STATUS = Path("/proc/meminfo"), Path("/proc/self/status")
CONTROL_GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# For each version: its mount point, and the files with the limit, the use, and the part of it that can be dropped.
_VERSION_2 = (Path(), "memory.max", "memory.current", "inactive_file")
_VERSION_1 = (Path("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes() -> int:
    """Number of bytes: the smallest that any limit leaves, at least 0."""
    return max(0, min([bytes_of(MEMINFO, "MemAvailable"), *_left_by_groups(), *_left_of_addresses()]))


def bytes_of(path: Path, name: str) -> int:
    """Return the bytes of a line such as `VmRSS:  1234 kB`. Raises InvalidValueError if the file has no such line."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise InvalidValueError("path", str(path), f"it must have a line {name}")


def _left_by_groups() -> Iterator[int]:
    """Yield what each limited group leaves: that of the process, and those above it."""
    for (mount, limit, used, cached), group in _groups():
        top = CONTROL_GROUPS / mount
        for folder in (top / group, *(top / group).parents):
            if not folder.is_relative_to(top):
                break
            with suppress(OSError, ValueError):  # no such file, or no limit but the word "max"
                left = int((folder / limit).read_text()) - int((folder / used).read_text())
                yield left + _counted(folder / "memory.stat", cached)


def _groups() -> Iterator[tuple[tuple[Path, str, str, str], str]]:
    """Yield the group of the process in each version, relative to its mount; in a container that can be the mount."""
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            yield _VERSION_1 if controllers else _VERSION_2, group.lstrip("/")


def _counted(path: Path, name: str) -> int:
    """Return the number of a line such as `inactive_file 4096`; 0 if there is no such line."""
    with suppress(OSError, ValueError):
        return next((int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(f"{name} ")), 0)
    return 0


def _left_of_addresses() -> Iterator[int]:
    """Yield what `ulimit -v` leaves, if there is such a limit."""
    with suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - bytes_of(STATUS, "VmSize")
