"""Execute every fault in turn, and compare the diagnosis of the harness with the true origin of the wrong words."""

from collections.abc import Callable

import numpy as np
import torch

from kvproof.check.data_plane.compare.diagnosis import diagnose, finding_about
from kvproof.check.data_plane.faults.catalogue import (
    BEFORE,
    FAULTS,
    MOVES,
    NUM_CPU_BLOCKS,
    NUM_GPU_BLOCKS,
    Fault,
    FaultyMover,
    Surface,
)
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.pattern import unpack
from kvproof.check.data_plane.memory.world import World
from kvproof.check.data_plane.run.results import FaultResult, WrongRow
from kvproof.check.data_plane.speed.stopwatch import one_thread
from kvproof.check.data_plane.steps.moves import PoolId

GEOMETRY = Geometry(
    Layout.TWO_PLANES,
    "bfloat16",
    block_size=8,
    num_heads=2,
    head_size=64,
    num_layers=3,
    num_gpu_blocks=NUM_GPU_BLOCKS,
    num_cpu_blocks=NUM_CPU_BLOCKS,
)
ROWS_MAX = 64  # rows of each pool that are diagnosed and checked
_COLUMN_BITS, _POOL_AT, _OLDER_AT = 16, 56, 60


@one_thread()
def judge_faults(device: torch.device, on_progress: Callable[[int, int], None] | None = None) -> list[FaultResult]:
    """The result of each fault of the catalogue. Raises AssertionError if the harness reports a right mover."""
    stage = _Stage(device)
    right = stage.judge(Fault("none", FaultyMover().move, sentence="Everything is moved right."))
    if right.is_caught:
        raise AssertionError(f"the harness reports a right mover as faulty: {right.message}")
    found = []
    for number, fault in enumerate(FAULTS, start=1):
        found.append(stage.judge(fault))
        if on_progress:
            on_progress(number, len(FAULTS))
    return found


class _Stage:
    """The pools, which are reset to their state before the step for each fault."""

    def __init__(self, device: torch.device) -> None:
        self.world = World(GEOMETRY, device)
        self.arenas = self.world.arenas
        self.older = {pool: arena.memory.clone() for pool, arena in self.arenas.items()}
        self.older_labels = {pool: arena.labels.copy() for pool, arena in self.arenas.items()}
        self.world.release(BEFORE)
        self.world.compute(BEFORE)
        self.start = {pool: arena.memory.clone() for pool, arena in self.arenas.items()}
        self.addresses = {pool: _addresses(pool, arena.memory) for pool, arena in self.arenas.items()}
        self.older_addresses = {pool: words | 1 << _OLDER_AT for pool, words in self.addresses.items()}
        self.world.expect(MOVES)

    def judge(self, fault: Fault) -> FaultResult:
        """Execute the fault, let the harness diagnose it, repeat it on addresses, and compare."""
        world = self.world
        self._restore(self.start)
        fault.plant(Surface(self.arenas, self.older, MOVES))
        world.synchronize()
        wrong = world.wrong()
        if not wrong:
            return FaultResult(fault.id, fault.sentence, False, "")
        rows = diagnose(world, wrong, ROWS_MAX)
        finding = finding_about(rows, sum(map(len, wrong.values())), step=1)
        self._restore(self.addresses)
        fault.plant(Surface(self.arenas, self.older_addresses, MOVES))
        world.synchronize()
        named = [self._is_true(row) for row in rows if row.origin is not None]
        return FaultResult(
            fault.id,
            fault.sentence,
            True,
            finding.text,
            finding.wrong[0].wrong_class.value,
            all(row.wrong_class in fault.found_by for row in rows),
            all(named) if named else None,
        )

    def _restore(self, memory: dict[PoolId, torch.Tensor]) -> None:
        for pool, words in memory.items():
            self.arenas[pool].memory.copy_(words)

    def _is_true(self, row: WrongRow) -> bool:
        """Whether some word of the row really comes from the diagnosed place, at the diagnosed distance."""
        assert row.origin is not None
        found = self.arenas[PoolId(row.pool)].memory[row.memory_row].cpu().numpy().view(np.uint64)
        rows_apart = row.row_in_block - row.origin.row % GEOMETRY.rows_per_part
        for column, address in enumerate(found.tolist()):
            label, source_column = self._source(address)
            distance = rows_apart * len(found) + column - source_column
            if row.origin == unpack(label) and row.shift_bytes in (None, 8 * distance):
                return True
        return False

    def _source(self, address: int) -> tuple[int, int]:
        """The label that the addressed row had when it was copied, and the addressed column."""
        labels = self.older_labels if address >> _OLDER_AT & 1 else self.world.before
        place = address & (1 << _POOL_AT) - 1
        label = labels[PoolId(address >> _POOL_AT & 1)][place >> _COLUMN_BITS]
        return int(label), place & (1 << _COLUMN_BITS) - 1


def _addresses(pool: PoolId, memory: torch.Tensor) -> torch.Tensor:
    """Memory in which every word is its own address."""
    rows, columns = (torch.arange(size, device=memory.device) for size in memory.shape)
    return (rows[:, None] << _COLUMN_BITS) | columns | int(pool) << _POOL_AT
