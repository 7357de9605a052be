"""Where the rows of a pool lie: layouts, element types, sizes.

All layouts reduce to one memory of equal rows for each pool. A block's part (key, value or joint) of one layer takes
`rows_per_part` rows side by side; from block to block they are `block_stride` rows apart. What lies between, before and
after is guard: filled, never in a mapping, always compared. So a write one block past the end lands in a guard.

A row is as much as lies together of one slot: a slot of all heads, or of one head in HND. Where a slot's elements are
scattered (keys split by x), a part is cut into `block_size` stripes instead. Slots too small for whole words of 8 bytes
share a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

import torch

from kvproof.check.data_plane.memory.pattern import LAYERS_MAX, ROWS_MAX, Part
from kvproof.check.data_plane.steps.moves import PoolId

WORD_BYTES = 8
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
    "uint8": torch.uint8,
}


class UnknownSetting(ValueError):
    """A layout, element type, executor or size that there is not; the message is for the user."""


class Layout(Enum):
    """The order in which one layer is stored; N tokens, H heads, D head size, x elements of 16 bytes."""

    TWO_PLANES = "two-planes"  # [2, blocks, N, H, D]
    NHD = "nhd"  # [blocks, 2, N, H, D]
    HND = "hnd"  # [blocks, 2, H, N, D]
    KEY_SPLIT = "key-split"  # [2, blocks, N × H × D]; keys [blocks, H, D / x, N, x], values [blocks, H, D, N]
    LATENT = "latent"  # [blocks, N, D], no values
    PACKED = "packed"  # [blocks, all layers and padding], each layer a strided view [blocks, 2, N, H, D]


def layout_named(name: str) -> Layout:
    """Raises UnknownSetting."""
    try:
        return Layout(name)
    except ValueError:
        known = ", ".join(layout.value for layout in Layout)
        raise UnknownSetting(f"no layout is named {name!r}; there are {known}") from None


def dtype_named(name: str) -> torch.dtype:
    """Raises UnknownSetting."""
    if name not in DTYPES:
        raise UnknownSetting(f"no element type is named {name!r}; there are {', '.join(DTYPES)}")
    return DTYPES[name]


class Strip(NamedTuple):
    """Where one part of one layer lies in a pool's memory, counted in rows."""

    layer: int
    part: Part
    first_row: int
    block_stride: int


@dataclass(frozen=True)
class Geometry:
    """Sizes of both pools. block_size in tokens, head_size in elements, guard_blocks before and after each layer.

    Raises UnknownSetting for sizes that cannot be.
    """

    layout: Layout
    dtype: str
    block_size: int
    num_heads: int
    head_size: int
    num_layers: int
    num_gpu_blocks: int
    num_cpu_blocks: int
    guard_blocks: int = 2

    def __post_init__(self) -> None:
        dtype_named(self.dtype)
        for name in ("block_size", "num_heads", "head_size", "num_layers", "guard_blocks"):
            if getattr(self, name) < 1:
                raise UnknownSetting(f"{name} is {getattr(self, name)}; it must be at least 1")
        if min(self.num_gpu_blocks, self.num_cpu_blocks) < 0:
            raise UnknownSetting("a pool cannot have fewer than 0 blocks")
        if self.num_layers > LAYERS_MAX:
            raise UnknownSetting(f"{self.num_layers} layers are more than the {LAYERS_MAX} that a label has room for")
        if self.layout is Layout.LATENT and self.num_heads != 1:
            raise UnknownSetting(f"a latent cache has one head, not {self.num_heads}")
        if self.part_bytes % WORD_BYTES:
            raise UnknownSetting(
                f"a block of {self.part_bytes} bytes is not a whole number of words of {WORD_BYTES} bytes; "
                "take a larger block or head size"
            )
        if max(self.num_rows(pool) for pool in PoolId) > ROWS_MAX:
            raise UnknownSetting(f"a pool has more than the {ROWS_MAX} rows that a label has room for")

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part.JOINT,) if self.layout is Layout.LATENT else (Part.KEY, Part.VALUE)

    @property
    def part_bytes(self) -> int:
        """Bytes of one block, one layer, one part."""
        return self.block_size * self.num_heads * self.head_size * self.torch_dtype.itemsize

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers and parts."""
        return self.part_bytes * len(self.parts) * self.num_layers

    @property
    def plane_bytes(self) -> int:
        """Bytes of one block and layer that lie together: of key and value, or of one where they have own planes."""
        return self.part_bytes * len(self.parts) // self._num_planes

    @cached_property
    def rows_per_part(self) -> int:
        """Rows of one block, one layer, one part."""
        finest = self.block_size * (self.num_heads if self.layout is Layout.HND else 1)
        num_words = self.part_bytes // WORD_BYTES
        return max(rows for rows in range(1, finest + 1) if not finest % rows and not num_words % rows)

    @cached_property
    def row_words(self) -> int:
        return self.part_bytes // WORD_BYTES // self.rows_per_part

    @property
    def row_bytes(self) -> int:
        return self.row_words * WORD_BYTES

    def num_blocks(self, pool: PoolId) -> int:
        return self.num_gpu_blocks if pool is PoolId.GPU else self.num_cpu_blocks

    def num_rows(self, pool: PoolId) -> int:
        """All rows of a pool's memory, guards included."""
        num_blocks, stride = self.num_blocks(pool), self._block_stride
        if self.layout is Layout.PACKED:
            return (num_blocks + 2 * self.guard_blocks) * stride
        planes = self._num_planes
        return self.num_layers * (num_blocks * planes + self.guard_blocks) * stride + self.guard_blocks * stride

    def num_bytes(self) -> int:
        """Bytes of both pools, guards included."""
        return sum(self.num_rows(pool) for pool in PoolId) * self.row_bytes

    @property
    def _num_planes(self) -> int:
        return 2 if self.layout in (Layout.TWO_PLANES, Layout.KEY_SPLIT) else 1

    @property
    def _block_stride(self) -> int:
        rows, parts = self.rows_per_part, len(self.parts)
        if self.layout is Layout.PACKED:
            return rows * parts * self.num_layers + rows  # a part's worth of padding after each block
        return rows * parts // self._num_planes

    def strips(self, pool: PoolId) -> Iterator[Strip]:
        """Where each layer's parts lie."""
        num_blocks, rows, stride = self.num_blocks(pool), self.rows_per_part, self._block_stride
        guard = self.guard_blocks * stride
        for layer in range(self.num_layers):
            for index, part in enumerate(self.parts):
                if self.layout is Layout.PACKED:
                    first = guard + (layer * len(self.parts) + index) * rows
                elif self._num_planes == 2:
                    first = guard + layer * (2 * num_blocks * rows + guard) + index * num_blocks * rows
                else:
                    first = guard + layer * (num_blocks * stride + guard) + index * rows
                yield Strip(layer, part, first, stride)

    def rows_of_slots(self, first_slot: int, num_slots: int) -> list[int]:
        """The rows of a block, counted in its part, that hold any of these slots."""
        slots, rows, size = range(first_slot, first_slot + num_slots), self.rows_per_part, self.block_size
        if self.layout is not Layout.HND:
            return sorted({slot * rows // size for slot in slots})
        if rows != size * self.num_heads:  # several heads or slots share a row
            return list(range(rows))
        return [head * size + slot for head in range(self.num_heads) for slot in slots]

    def row_text(self, row: int) -> str:
        """What a row of a block is called, such as `slot 5`."""
        rows, size = self.rows_per_part, self.block_size
        if self.layout is Layout.KEY_SPLIT:
            return f"stripe {row} of {rows}"
        if self.layout is Layout.HND and rows == size * self.num_heads:
            return f"slot {row % size}, head {row // size}"
        if self.layout is Layout.HND or rows != size:
            return f"stripe {row} of {rows}"
        return f"slot {row}"
