"""The memory layout of KV cache blocks: element types, layouts, bytes per block.

A layer of a pool is one tensor over one piece of memory. As bytes it is one or two *planes* of shape `[blocks, bytes]`:
two if keys and values are stored apart, one if each block has them side by side or if there are no values. Moving a
block means moving its row in every plane as bytes, whatever the element type, so NaNs keep their bits.

torch is imported when a type or a tensor is asked for: the proofs read this file without torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from .errors import InvalidValueError, require_at_least

if TYPE_CHECKING:
    import torch

CACHE_DTYPES = {  # the name of a type of caches, and that of torch's type
    "float": "float32",
    "float32": "float32",
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    # vLLM stores fp8 caches as plain bytes; the two torch types have names of their own.
    "fp8": "uint8",
    "fp8_e4m3": "uint8",
    "fp8_e5m2": "uint8",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "int8": "int8",
    "uint8": "uint8",
}


class KVLayout(Enum):
    """The order in which one layer is stored; in the values, H stands for KV heads and N for tokens."""

    TWO_PLANES = "[2, blocks, N, H, head size]"
    NHD = "[blocks, 2, N, H, head size]"
    HND = "[blocks, 2, H, N, head size]"
    LATENT = "[blocks, N, head size]"

    @property
    def num_planes(self) -> int:
        """Number of separate pieces of memory of one block of one layer."""
        return 2 if self is KVLayout.TWO_PLANES else 1


def cache_dtype(name: str | torch.dtype, model_dtype: torch.dtype | None = None) -> torch.dtype:
    """Return the type in which a cache is stored: `auto` is the type of the model, fp8 is stored as bytes.

    Raises InvalidValueError for an unknown name, and for `auto` without a model.
    Source: vLLM 0.6, utils.py, STR_DTYPE_TO_TORCH_DTYPE.
    """
    if name == "auto":
        if model_dtype is None:
            raise InvalidValueError("dtype", name, "auto needs a model_dtype")
        return cache_dtype(model_dtype)
    import torch

    asked = str(name).removeprefix("torch.") if isinstance(name, torch.dtype) else CACHE_DTYPES.get(name, "")
    if asked not in CACHE_DTYPES.values():
        raise InvalidValueError("dtype", name, f"it must be auto or one of {', '.join(CACHE_DTYPES)}")
    dtype: torch.dtype = getattr(torch, asked)
    return dtype


def block_bytes(
    block_size: int,
    num_layers: int,
    num_kv_heads: int,
    head_size: int,
    dtype: str | torch.dtype,
    *,
    latent: bool = False,
    model_dtype: torch.dtype | None = None,
) -> int:
    """Number of bytes of one block over all layers, keys and values together; a latent cache has no values.

    block_size in tokens, head_size in elements, num_kv_heads those of one rank. fp8 types count one byte.
    Raises ValueError if any size is below 1.
    Source: vLLM 0.6, worker/cache_engine.py, get_cache_block_size.
    """
    require_at_least("block_size", block_size, 1)
    require_at_least("num_layers", num_layers, 1)
    require_at_least("num_kv_heads", num_kv_heads, 1)
    require_at_least("head_size", head_size, 1)
    keys = num_kv_heads * head_size
    values = 0 if latent else keys
    return block_size * num_layers * (keys + values) * cache_dtype(dtype, model_dtype).itemsize


@dataclass(frozen=True)
class KVBlockShape:
    """One block of one layer: block_size in tokens, head_size in elements. A latent cache has one head."""

    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: torch.dtype
    layout: KVLayout = KVLayout.TWO_PLANES

    def __post_init__(self) -> None:
        self.bytes_per_layer()  # refuses sizes below 1
        if self.layout is KVLayout.LATENT and self.num_kv_heads != 1:
            raise InvalidValueError("num_kv_heads", self.num_kv_heads, "it must be 1 for a latent cache")

    @property
    def latent(self) -> bool:
        return self.layout is KVLayout.LATENT

    @property
    def num_planes(self) -> int:
        return self.layout.num_planes

    def bytes_per_layer(self) -> int:
        return block_bytes(self.block_size, 1, self.num_kv_heads, self.head_size, self.dtype, latent=self.latent)

    def allocate(self, num_blocks: int, device: torch.device, *, pinned: bool = False) -> torch.Tensor:
        """Return the bytes of one layer, all zero."""
        import torch

        size = num_blocks * self.bytes_per_layer()
        return torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pinned)

    def typed(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the elements of one layer; NHD and HND have the same axes and different strides."""
        tokens, heads, size = self.block_size, self.num_kv_heads, self.head_size
        num_blocks = memory.numel() // self.bytes_per_layer()
        elements = memory.view(self.dtype)
        match self.layout:
            case KVLayout.TWO_PLANES:
                return elements.view(2, num_blocks, tokens, heads, size)
            case KVLayout.NHD:
                return elements.view(num_blocks, 2, tokens, heads, size)
            case KVLayout.HND:
                return elements.view(num_blocks, 2, heads, tokens, size).transpose(2, 3)
            case KVLayout.LATENT:
                return elements.view(num_blocks, tokens, size)

    def planes(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Return the planes of one layer as `[blocks, words]`; a word is the widest integer that divides a row."""
        import torch

        row_bytes = self.bytes_per_layer() // self.num_planes
        word = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[math.gcd(row_bytes, 8)]
        num_blocks = memory.numel() // self.bytes_per_layer()
        rows = memory.view(word).view(self.num_planes, num_blocks, row_bytes // word.itemsize)
        return list(rows.unbind(0))
