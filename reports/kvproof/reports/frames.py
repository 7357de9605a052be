"""A run frame by frame: what the specification says after each step, and where the subject shows something else."""

from dataclasses import dataclass, field
from typing import NamedTuple

FREE = "free"


class Entry(NamedTuple):
    """One entry of a table. block: None where a sliding window left one. shown: what the subject has there instead."""

    block: int | None
    num_known: int  # tokens
    num_done: int  # tokens whose KV is computed
    shown: str = ""
    is_wrong: bool = False  # the block does not hold the KV that it should


class Lane(NamedTuple):
    """One sequence, or one holder of a pool, or its table in a further KV group."""

    name: str
    status: str
    entries: tuple[Entry, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the subject shows another table, or wrong KV is in it."""
        return any(entry.shown or entry.is_wrong for entry in self.entries)


class Block(NamedTuple):
    """One block. list: free, used, evictable or reserved. differences: what the subject shows of it instead."""

    id: int
    refcount: int = 0
    list: str = FREE
    is_cached: bool = False
    num_written: int = 0  # slots
    num_pins: int = 0  # accesses in flight
    differences: tuple[str, ...] = ()
    is_named: bool = False  # by the text of the finding


class Pool(NamedTuple):
    """One device: its blocks that could be taken, by the specification, and by the subject where it says otherwise."""

    name: str
    num_free: int
    shown: int | None = None


@dataclass(frozen=True)
class Frame:
    """After one step, told as everywhere. Blocks that are left out are free, and nobody names them."""

    step: str
    lanes: tuple[Lane, ...] = ()
    blocks: tuple[Block, ...] = ()
    pools: tuple[Pool, ...] = ()

    @property
    def is_marked(self) -> bool:
        """Whether any cell differs."""
        differs = any(lane.differs for lane in self.lanes) or any(block.differences for block in self.blocks)
        return differs or any(pool.shown is not None for pool in self.pools)


@dataclass(frozen=True)
class ReplayFrames:
    """The frames of one replay. `outcome` says what it ended in; `problem` why there are no frames."""

    frames: list[Frame] = field(default_factory=list)
    outcome: str = ""
    is_refuted: bool = False
    problem: str = ""
    num_gpu_blocks: int = 0
    num_host_blocks: int = 0
    block_size: int = 1
