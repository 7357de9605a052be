"""Compute what each row of both pools must hold after a step, with tags instead of bytes.

A tag is a label of layer 0, part key; all layers and parts move alike. The lists of a step are executed in the worker's
order: swaps in, swaps out, copies. Within a list all sources are read before any target is written. The linter refuses
lists for which another order would give another result, so this choice does not matter.

This is the side of the specification. It knows neither tensors nor layouts, and shares no code with the executors.
"""

import numpy as np

from kvproof.check.data_plane.memory.pattern import Kind, Words, label
from kvproof.check.data_plane.steps.moves import Moves, PoolId, Step


class Interpreter:
    """The tags of both pools, `[blocks, rows_per_block]`. Initially each row holds its own data of generation 1."""

    def __init__(self, num_gpu_blocks: int, num_cpu_blocks: int, rows_per_block: int) -> None:
        self.rows_per_block = rows_per_block
        sizes = {PoolId.GPU: num_gpu_blocks, PoolId.CPU: num_cpu_blocks}
        self.tags: dict[PoolId, Words] = {}
        self.generations: dict[PoolId, list[list[int]]] = {}
        for pool, num_blocks in sizes.items():
            first = np.uint64(label(Kind.DATA, pool, 0, generation=1))
            rows = np.arange(num_blocks * rows_per_block, dtype=np.uint64)
            self.tags[pool] = (first | rows).reshape(num_blocks, rows_per_block)
            self.generations[pool] = [[1] * rows_per_block for _ in range(num_blocks)]

    def move(self, moves: Moves) -> None:
        """Execute the three lists, in order."""
        for _, source, target, pairs in moves.lists():
            read = [self.tags[source][source_block].copy() for source_block, _ in pairs]
            for (_, target_block), row_tags in zip(pairs, read, strict=True):
                self.tags[target][target_block] = row_tags

    def write(self, block: int, rows: list[int]) -> None:
        """Give these rows of a GPU block their own data of the next generation, as when the model writes them."""
        for row in rows:
            self.generations[PoolId.GPU][block][row] += 1
            generation = self.generations[PoolId.GPU][block][row]
            self.tags[PoolId.GPU][block, row] = label(Kind.DATA, PoolId.GPU, self._number(block, row), generation)

    def poison(self, pool: PoolId, block: int) -> None:
        """Mark all rows of a free block as poison: nothing may read them before they are written again."""
        for row in range(self.rows_per_block):
            generation = self.generations[pool][block][row]
            self.tags[pool][block, row] = label(Kind.POISON, pool, self._number(block, row), generation)

    def freed(self, step: Step) -> list[tuple[PoolId, int]]:
        """The blocks that the step frees, with their pools."""
        return [(PoolId.GPU, b) for b in step.freed_gpu] + [(PoolId.CPU, b) for b in step.freed_cpu]

    def _number(self, block: int, row: int) -> int:
        return block * self.rows_per_block + row
