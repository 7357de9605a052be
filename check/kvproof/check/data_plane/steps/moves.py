"""The effect of an engine's step on the two pools, as data.

A worker executes the swaps in, then the swaps out, then the copies, then the model, which writes slots. Ids count from
0 in each pool. Freed blocks are poisoned after the moves, so that a later read of them is detected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from kvproof.spec.text import mapping

Pair = tuple[int, int]  # source block, target block


class PoolId(IntEnum):
    """A pool. The number is the one that the pattern encodes."""

    GPU = 0
    CPU = 1

    def __str__(self) -> str:
        return f"the {self.name} pool"


@dataclass(frozen=True)
class Moves:
    """The three lists of one step, in the order in which a worker executes them."""

    swap_in: tuple[Pair, ...] = ()
    swap_out: tuple[Pair, ...] = ()
    copy: tuple[Pair, ...] = ()

    def lists(self) -> Iterator[tuple[str, PoolId, PoolId, tuple[Pair, ...]]]:
        """Name, source pool, target pool and pairs of each list, in order."""
        lists = {
            mapping.SWAP_IN: (PoolId.CPU, PoolId.GPU, self.swap_in),
            mapping.SWAP_OUT: (PoolId.GPU, PoolId.CPU, self.swap_out),
            mapping.COPY: (PoolId.GPU, PoolId.GPU, self.copy),
        }
        return ((name, *lists[name]) for name in mapping.WORKER_ORDER)

    @property
    def num_pairs(self) -> int:
        return len(self.swap_in) + len(self.swap_out) + len(self.copy)


@dataclass(frozen=True)
class Write:
    """The model writes the KV of `num_slots` slots of a GPU block, starting at `first_slot`, in every layer."""

    block: int
    first_slot: int
    num_slots: int


@dataclass(frozen=True)
class Step:
    """One step: first the moves, then the blocks that become free, then the writes of the model."""

    moves: Moves = Moves()
    freed_gpu: tuple[int, ...] = ()
    freed_cpu: tuple[int, ...] = ()
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """The steps of one kind of mapping, for pools of these sizes. seed: reproduces the steps."""

    kind: str
    seed: int
    num_gpu_blocks: int
    num_cpu_blocks: int
    block_size: int
    steps: tuple[Step, ...]

    @property
    def num_pairs(self) -> int:
        return sum(step.moves.num_pairs for step in self.steps)
