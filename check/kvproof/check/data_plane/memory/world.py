"""Both pools together: fill them, compute what each step must do, compare.

The order of a step is: `expect(step.moves)` computes what must follow, the executor moves the bytes, and `wrong()`
compares every row. Then `release(step)` poisons the freed blocks and `compute(step)` writes what the model computes;
the harness does both itself, to the memory and to the tags.
"""

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
