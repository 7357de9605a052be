"""Both pools together: filled, stepped by the interpreter, compared.

The order of a step: `expect(step.moves)` tells what must come; the executor moves the bytes; `wrong()` compares every
row. Then `release(step)` poisons what is free, `compute(step)` writes what the model computes: both are done by us, in
the memory and on the tags.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kvproof.check.data_plane.memory.arena import Arena
from kvproof.check.data_plane.memory.layouts import Geometry
from kvproof.check.data_plane.memory.pattern import Words
from kvproof.check.data_plane.steps.interpreter import Interpreter
from kvproof.check.data_plane.steps.moves import Moves, PoolId, Step


@dataclass(frozen=True)
class Caches:
    """What an executor under test is given: typed tensors, one for each layer, of both pools.

    gpu, cpu: shapes by `geometry.layout`, see `layouts.Layout`. gpu_planes, cpu_planes: the same memory as int64
    `[blocks, words]`, see `Arena.planes`: one for each layer, or two where keys and values lie apart.
    In main memory both pools are tensors of the CPU.
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
    """Two pools on a device, every row filled.

    `device` is that of the GPU pool; the CPU pool lies in main memory, pinned if the other is a GPU's.
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
        """Bytes that each comparison proves."""
        return self.geometry.num_bytes()

    def caches(self) -> Caches:
        """The views of both pools for an executor."""
        return caches_of(self.arenas)

    def expect(self, moves: Moves) -> None:
        """What the moves must come to; `before` keeps the labels as they were."""
        self.before = {pool: arena.labels.copy() for pool, arena in self.arenas.items()}
        self.interpreter.move(moves)
        self._expect()

    def wrong(self) -> dict[PoolId, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """Rows of each pool's memory that do not hold what they must; empty if all is right."""
        found = {pool: arena.bad_rows() for pool, arena in self.arenas.items()}
        return {pool: rows for pool, rows in found.items() if len(rows)}

    def release(self, step: Step) -> None:
        """Poison the blocks that the step frees, tags and bytes."""
        for pool, block in self.interpreter.freed(step):
            self.interpreter.poison(pool, block)
        self._settle()

    def compute(self, step: Step) -> None:
        """What the model writes, tags and bytes."""
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
        """Bring the memory to what the tags now say, by our own hand."""
        old = {pool: arena.labels.copy() for pool, arena in self.arenas.items()}
        self._expect()
        for pool, arena in self.arenas.items():
            if len(changed := np.flatnonzero(arena.labels != old[pool])):
                arena.fill_rows(changed)
        self.synchronize()
