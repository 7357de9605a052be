"""The effect of an engine's step on the two pools, as data.

A worker executes the lists in `WORKER_ORDER` (swaps in, swaps out, copies), then the model, which writes slots. Ids
count from 0 in each pool. Freed blocks are poisoned after the moves, so that a later read of them is detected.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from kvproof.spec.text.mapping import COPY, SWAP_IN, SWAP_OUT, WORKER_ORDER

Pair = tuple[int, int]  # source block, target block


class PoolId(IntEnum):
    """A pool. The number is the one that the pattern encodes."""

    GPU = 0
    CPU = 1

    def __str__(self) -> str:
        return f"the {self.name} pool"


# Source and target pool of each list.
POOLS = {
    SWAP_IN: (PoolId.CPU, PoolId.GPU),
    SWAP_OUT: (PoolId.GPU, PoolId.CPU),
    COPY: (PoolId.GPU, PoolId.GPU),
}


@dataclass(frozen=True)
class Moves:
    """The three lists of one step."""

    swap_in: tuple[Pair, ...] = ()
    swap_out: tuple[Pair, ...] = ()
    copy: tuple[Pair, ...] = ()

    def lists(self) -> Iterator[tuple[str, PoolId, PoolId, tuple[Pair, ...]]]:
        """Name, source pool, target pool and pairs of each list, in the order in which a worker executes them."""
        for name in WORKER_ORDER:
            yield name, *POOLS[name], getattr(self, name)

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
