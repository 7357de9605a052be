"""A run as frames: the state of the specification after each step, and where the subject's state differs."""

from dataclasses import dataclass, field
from typing import NamedTuple

FREE = "free"


class EntryFrame(NamedTuple):
    """One entry of a block table. block: None if the entry left the sliding window.

    observed: the entry of the subject, as text, if it differs; else empty.
    """

    block: int | None
    num_known: int  # tokens
    num_done: int  # tokens whose KV is computed
    observed: str = ""
    is_wrong: bool = False  # the block holds the wrong KV


class Lane(NamedTuple):
    """One sequence in one KV group, or one holder of blocks of a pool."""

    name: str
    status: str
    entries: tuple[EntryFrame, ...] = ()


class Block(NamedTuple):
    """One block. list: free, used, evictable or reserved. differences: one text for each difference of the subject."""

    id: int
    refcount: int = 0
    list: str = FREE
    is_cached: bool = False
    num_written: int = 0  # slots
    num_pins: int = 0  # transfers in flight
    differences: tuple[str, ...] = ()
    is_named: bool = False  # by the text of the finding


class PoolFrame(NamedTuple):
    """One device. num_free: free and evictable blocks. observed: the number that the subject reports, if it differs."""

    name: str
    num_free: int
    observed: int | None = None


class Move(NamedTuple):
    """Content that the step moves. kind: such as "copy" or "swap out". source, target: blocks; None for elsewhere."""

    kind: str
    source: int | None
    target: int | None
    status: str = ""


class Choice(NamedTuple):
    """A kind of operation that is enabled after the step. about: what it may be about. is_next: it came next."""

    name: str
    about: str = ""
    is_next: bool = False


@dataclass(frozen=True)
class StepFrame:
    """The state after one step. step: the step as text. Blocks that are not listed are free, and no table has them.

    moves: what the step copies. choices: what could be done next.
    """

    step: str
    lanes: tuple[Lane, ...] = ()
    blocks: tuple[Block, ...] = ()
    pools: tuple[PoolFrame, ...] = ()
    moves: tuple[Move, ...] = ()
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class ReplayFrames:
    """The frames of one replay. outcome: how it ended, as text. problem: why there are no frames, as text."""

    frames: list[StepFrame] = field(default_factory=list)
    outcome: str = ""
    is_refuted: bool = False
    problem: str = ""
    num_gpu_blocks: int = 0
    num_host_blocks: int = 0
    block_size: int = 1
