"""Layouts, element types and sizes of a cache, and where its rows lie in memory.

Each layout is mapped to one memory of equal rows per pool. A part (key, value or joint) of one block and layer takes
`rows_per_part` adjacent rows; from one block to the next they are `block_stride` rows apart. The rows before, between
and after the blocks are guards: filled, in no mapping, and always compared. So a write one block past the end changes a
guard.

A row is the contiguous memory of one slot: all its heads, or one head in HND. If the elements of a slot are not
contiguous (keys split by x), a part is divided into `block_size` stripes instead. Slots that are no whole number of
8-byte words share a row.
"""

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
    """A layout, element type, executor or size that does not exist; the message is for the user."""


class Layout(Enum):
    """The memory order of one layer. N: tokens of a block, H: heads, D: head size, x: elements in 16 bytes."""

    TWO_PLANES = "two-planes"  # [2, blocks, N, H, D]
    NHD = "nhd"  # [blocks, 2, N, H, D]
    HND = "hnd"  # [blocks, 2, H, N, D]
    KEY_SPLIT = "key-split"  # [2, blocks, N × H × D]; keys [blocks, H, D / x, N, x], values [blocks, H, D, N]
    LATENT = "latent"  # [blocks, N, D], no values
    PACKED = "packed"  # [blocks, all layers and padding], each layer a strided view [blocks, 2, N, H, D]


def layout_named(name: str) -> Layout:
    """The layout of this name. Raises UnknownSetting if there is none."""
    try:
        return Layout(name)
    except ValueError:
        known = ", ".join(layout.value for layout in Layout)
        raise UnknownSetting(f"no layout is named {name!r}; choose one of {known}") from None


def dtype_named(name: str) -> torch.dtype:
    """The element type of this name. Raises UnknownSetting if there is none."""
    if name not in DTYPES:
        raise UnknownSetting(f"no element type is named {name!r}; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


class Strip(NamedTuple):
    """The place of one part of one layer in the memory of a pool, in rows."""

    layer: int
    part: Part
    first_row: int
    block_stride: int


@dataclass(frozen=True)
class Geometry:
    """The sizes of both pools. block_size in tokens, head_size in elements; guard_blocks: before and after each layer.

    Raises UnknownSetting for impossible sizes.
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
            raise UnknownSetting(f"{self.num_layers} layers are too many; a label can encode {LAYERS_MAX}")
        if self.layout is Layout.LATENT and self.num_heads != 1:
            raise UnknownSetting(f"a latent cache has one head, not {self.num_heads}")
        if self.part_bytes % WORD_BYTES:
            raise UnknownSetting(
                f"a block of {self.part_bytes} bytes is not a whole number of words of {WORD_BYTES} bytes; "
                "take a larger block or head size"
            )
        if max(self.num_rows(pool) for pool in PoolId) > ROWS_MAX:
            raise UnknownSetting(f"a pool has more than {ROWS_MAX} rows, which is what a label can encode")

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part.JOINT,) if self.layout is Layout.LATENT else (Part.KEY, Part.VALUE)

    @property
    def part_bytes(self) -> int:
        """Bytes of one part of one block and layer."""
        return self.block_size * self.num_heads * self.head_size * self.torch_dtype.itemsize

    @property
    def block_bytes(self) -> int:
        """Bytes of one block, all layers and parts included."""
        return self.part_bytes * len(self.parts) * self.num_layers

    @property
    def plane_bytes(self) -> int:
        """Contiguous bytes of one block and layer: key and value together, or one of them if they have own planes."""
        return self.part_bytes * len(self.parts) // self._num_planes

    @cached_property
    def rows_per_part(self) -> int:
        """Rows of one part of one block and layer."""
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
        """Number of rows in the memory of a pool, guards included."""
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
            return rows * parts * self.num_layers + rows  # each block is followed by padding of the size of a part
        return rows * parts // self._num_planes

    def strips(self, pool: PoolId) -> Iterator[Strip]:
        """The places of all layers and parts in the memory of a pool."""
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
        """The rows that hold any of these slots, counted within one part of a block."""
        slots, rows, size = range(first_slot, first_slot + num_slots), self.rows_per_part, self.block_size
        if self.layout is not Layout.HND:
            return sorted({slot * rows // size for slot in slots})
        if rows != size * self.num_heads:  # several heads or slots share a row
            return list(range(rows))
        return [head * size + slot for head in range(self.num_heads) for slot in slots]

    def row_text(self, row: int) -> str:
        """The name of a row of a block, such as `slot 5`."""
        rows, size = self.rows_per_part, self.block_size
        if self.layout is Layout.KEY_SPLIT:
            return f"stripe {row} of {rows}"
        if self.layout is Layout.HND and rows == size * self.num_heads:
            return f"slot {row % size}, head {row // size}"
        if self.layout is Layout.HND or rows != size:
            return f"stripe {row} of {rows}"
        return f"slot {row}"
