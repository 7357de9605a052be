"""The memory of both pools: fill it, compute what each step must do, compare.

An `Arena` is the memory of one pool: rows of words, guards included, and what each row must hold. The executor under
test gets views of it: planes `[blocks, words]`, and one typed tensor per layer, as an engine has.

A `World` has both pools. The order of a step is: `expect(step.moves)` computes what must follow, the executor moves the
bytes, and `wrong()` compares every row. Then `release(step)` poisons the freed blocks and `compute(step)` writes what
the model computes; the harness does both itself, to the memory and to the tags.
"""

from dataclasses import dataclass

import numpy as np
import torch

from kvproof.check.data_plane.compare.compare import DEVICE_CHUNK_BYTES, bad_rows
from kvproof.check.data_plane.memory.layouts import Geometry, Layout, Strip
from kvproof.check.data_plane.memory.pattern import Kind, Part, Words, label, place_bits, row_keys, word_keys
from kvproof.check.data_plane.steps.interpreter import Interpreter
from kvproof.check.data_plane.steps.moves import Moves, PoolId, Step


@dataclass(frozen=True)
class Plane:
    """The blocks of one part of one layer, int64 `[blocks, words]`; strided if other rows lie between the blocks."""

    layer: int
    part: Part
    words: torch.Tensor


class Arena:
    """The memory of one pool on a device. `memory` is the content, `labels` the label that each row must hold.

    memory: int64 [rows, words], contiguous, to share memory with another process; None allocates it. is_pinned: whether
    main memory is page-locked, so that a GPU can copy it asynchronously.
    """

    def __init__(
        self,
        geometry: Geometry,
        pool: PoolId,
        device: torch.device,
        memory: torch.Tensor | None = None,
        *,
        is_pinned: bool = False,
    ) -> None:
        self.geometry, self.pool, self.device = geometry, pool, device
        shape = (geometry.num_rows(pool), geometry.row_words)
        if memory is None:
            memory = torch.empty(shape, dtype=torch.int64, device=device, pin_memory=is_pinned)
        self.memory = memory.view(shape)
        self.columns = word_keys(geometry.row_words)
        # A device fetches pinned labels while its own work goes on.
        places = torch.arange(shape[0], pin_memory=device.type == "cuda")
        self.labels: Words = places.numpy().view(np.uint64)
        self.labels |= np.uint64(label(Kind.GUARD, pool, 0))
        self.strips = list(geometry.strips(pool))

    def label_view(self, strip: Strip) -> Words:
        """A view of the labels of a strip, `[blocks, rows_per_part]`."""
        num_blocks, rows, size = self.geometry.num_blocks(self.pool), self.geometry.rows_per_part, self.labels.itemsize
        return np.lib.stride_tricks.as_strided(
            self.labels[strip.first_row :], (num_blocks, rows), (strip.block_stride * size, size)
        )

    def expect(self, tags: Words) -> None:
        """Set the labels that all blocks must hold. tags: `[blocks, rows_per_part]`, for layer 0, part key."""
        for strip in self.strips:
            self.label_view(strip)[:] = tags | np.uint64(place_bits(strip.layer, strip.part))

    def fill(self) -> None:
        """Write what every row must hold."""
        self.fill_rows(np.arange(len(self.labels)))

    def fill_rows(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Write what these rows must hold."""
        columns = torch.from_numpy(self.columns.view(np.int64)).to(self.device)
        is_all = len(rows) == len(self.labels)
        step = max(1, DEVICE_CHUNK_BYTES // self.geometry.row_bytes)
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            keys = torch.from_numpy(row_keys(self.labels[some]).view(np.int64)).to(self.device)[:, None]
            if is_all:
                torch.bitwise_xor(keys, columns, out=self.memory[first : first + step])
            else:
                self.memory[torch.from_numpy(some).to(self.device)] = keys ^ columns

    def bad_rows(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The numbers of the rows that do not hold what they must, guards included."""
        return bad_rows(self.memory, self.labels, self.columns)

    def planes(self) -> list[torch.Tensor]:
        """The planes, int64 `[blocks, words]`: one per layer, or two if keys and values are not adjacent.

        Rows are strided if other layers or padding lie between the blocks.
        """
        shape = self.geometry
        side_by_side = all(
            second.first_row - first.first_row == shape.rows_per_part
            for first, second in zip(self.strips[:1], self.strips[1 : len(shape.parts)], strict=False)
        )
        num_together = len(shape.parts) if side_by_side else 1
        return [self._plane(strip, num_together) for strip in self.strips[::num_together]]

    def parts(self) -> list[Plane]:
        """One plane per layer and part, in this order."""
        return [Plane(strip.layer, strip.part, self._plane(strip, 1)) for strip in self.strips]

    def _plane(self, strip: Strip, num_parts: int) -> torch.Tensor:
        words = self.geometry.row_words
        size = (self.geometry.num_blocks(self.pool), num_parts * self.geometry.rows_per_part * words)
        return self.memory.view(-1).as_strided(size, (strip.block_stride * words, 1), strip.first_row * words)

    def typed(self) -> list[torch.Tensor]:
        """One tensor per layer, in the shape of the layout and with the element type of the cache."""
        shape = self.geometry
        elements = self.memory.view(-1).view(torch.uint8).view(shape.torch_dtype)
        per_row = shape.row_bytes // shape.torch_dtype.itemsize
        tokens, heads, size = shape.block_size, shape.num_heads, shape.head_size
        num_blocks, part = shape.num_blocks(self.pool), tokens * heads * size
        plane = num_blocks * part
        tensors = []
        for strip in self.strips[:: len(shape.parts)]:
            start, stride = strip.first_row * per_row, strip.block_stride * per_row
            dims: tuple[int, ...]
            strides: tuple[int, ...]
            match shape.layout:
                case Layout.TWO_PLANES:
                    dims, strides = (2, num_blocks, tokens, heads, size), (plane, part, heads * size, size, 1)
                case Layout.KEY_SPLIT:
                    dims, strides = (2, num_blocks, part), (plane, part, 1)
                case Layout.LATENT:
                    dims, strides = (num_blocks, tokens, size), (stride, size, 1)
                case Layout.HND:
                    dims, strides = (num_blocks, 2, heads, tokens, size), (stride, part, tokens * size, size, 1)
                case Layout.NHD | Layout.PACKED:
                    dims, strides = (num_blocks, 2, tokens, heads, size), (stride, part, heads * size, size, 1)
            tensors.append(elements.as_strided(dims, strides, start))
        return tensors


@dataclass(frozen=True)
class Caches:
    """The tensors of both pools that an executor under test gets.

    gpu, cpu: one typed tensor per layer, in the shape of `geometry.layout` (see `layouts.Layout`). gpu_planes,
    cpu_planes: the same memory as int64 `[blocks, words]` (see `Arena.planes`), one plane per layer, or two if keys and
    values are not adjacent. In a run without a GPU both pools are CPU tensors.
    """

    geometry: Geometry
    gpu: list[torch.Tensor]
    cpu: list[torch.Tensor]
    gpu_planes: list[torch.Tensor]
    cpu_planes: list[torch.Tensor]


def caches_of(arenas: dict[PoolId, Arena]) -> Caches:
    """The views of two arenas."""
    gpu, cpu = arenas[PoolId.GPU], arenas[PoolId.CPU]
    return Caches(gpu.geometry, gpu.typed(), cpu.typed(), gpu.planes(), cpu.planes())


class World:
    """Two filled pools.

    device: the device of the GPU pool. The CPU pool lies in main memory, pinned if the device is a GPU.
    memories: given memory of the pools (see `Arena`); by default it is allocated.
    """

    def __init__(
        self, geometry: Geometry, device: torch.device, memories: dict[PoolId, torch.Tensor] | None = None
    ) -> None:
        self.geometry, self.device = geometry, device
        given = memories or {}
        self.arenas = {
            PoolId.GPU: Arena(geometry, PoolId.GPU, device, given.get(PoolId.GPU)),
            PoolId.CPU: Arena(
                geometry, PoolId.CPU, torch.device("cpu"), given.get(PoolId.CPU), is_pinned=device.type == "cuda"
            ),
        }
        self.interpreter = Interpreter(geometry.num_gpu_blocks, geometry.num_cpu_blocks, geometry.rows_per_part)
        self.before: dict[PoolId, Words] = {}
        self._expect()
        self.before = {pool: arena.labels.copy() for pool, arena in self.arenas.items()}
        for arena in self.arenas.values():
            arena.fill()
        self.synchronize()

    @property
    def num_bytes(self) -> int:
        """Bytes that each comparison covers."""
        return self.geometry.num_bytes()

    def caches(self) -> Caches:
        """The views of both pools for an executor."""
        return caches_of(self.arenas)

    def expect(self, moves: Moves) -> None:
        """Compute what the pools must hold after these moves. `before` gets the labels from before the moves."""
        self.before = {pool: arena.labels.copy() for pool, arena in self.arenas.items()}
        self.interpreter.move(moves)
        self._expect()

    def wrong(self) -> dict[PoolId, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """The rows of each pool that do not hold what they must; an empty dict if all rows are right."""
        found = {pool: arena.bad_rows() for pool, arena in self.arenas.items()}
        return {pool: rows for pool, rows in found.items() if len(rows)}

    def release(self, step: Step) -> None:
        """Poison the blocks that the step frees, in tags and bytes."""
        for pool, block in self.interpreter.freed(step):
            self.interpreter.poison(pool, block)
        self._settle()

    def compute(self, step: Step) -> None:
        """Write what the model writes in the step, in tags and bytes."""
        for write in step.writes:
            self.interpreter.write(write.block, self.geometry.rows_of_slots(write.first_slot, write.num_slots))
        self._settle()

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _expect(self) -> None:
        for pool, arena in self.arenas.items():
            arena.expect(self.interpreter.tags[pool])

    def _settle(self) -> None:
        """Write the rows whose tags have changed."""
        old = {pool: arena.labels.copy() for pool, arena in self.arenas.items()}
        self._expect()
        for pool, arena in self.arenas.items():
            if len(changed := np.flatnonzero(arena.labels != old[pool])):
                arena.fill_rows(changed)
        self.synchronize()
