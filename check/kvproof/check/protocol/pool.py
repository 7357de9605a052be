"""The protocol of a block pool: the calls that it must offer to be judged, with block ids only.

A pool knows no sequences. A *holder* got blocks by `allocate`, or by `share` after it found them in the cache or took
over another holder's, and gives each of them up by `free`. A block stands for one page. Its content is named by the
list of all pages up to it, small numbers; two blocks have equal contents if these lists are equal.

Block ids and errors are as in `protocol.manager`.
"""

from dataclasses import dataclass
from typing import Protocol

from kvproof.check.protocol.manager import Assumption, Capabilities, Config, Observation, Refused


@dataclass(frozen=True)
class PoolConfig(Config):
    """One configuration of a pool: `num_gpu_blocks` blocks of one page, with or without `caching`."""

    block_size: int = 1


class PoolSubject(Protocol):
    """A block pool behind an adapter. Of its capabilities, only `fork` (to share), `caching` and `reset` are used."""

    name: str
    capabilities: Capabilities
    assumptions: tuple[Assumption, ...]

    def open(self, config: PoolConfig) -> None:
        """Make a new pool in which every block is free, and forget the old one. Raises Unsupported."""

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        """Take blocks without content, and hold one reference to each. It may only refuse if fewer are free."""

    def share(self, blocks: list[int]) -> None:
        """Hold one more reference to each block. Each is held already, or was just found in the cache."""

    def free(self, blocks: list[int]) -> None:
        """Give up one reference for each mention of a block. A block that two holders give up at once occurs twice."""

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        """The KV of the blocks is computed. From now on block i can be found under `pages[: i + 1]`."""

    def find(self, pages: list[int]) -> list[int]:
        """The blocks that are cached for the longest cached prefix of the pages. Changes nothing."""

    def reset_cache(self) -> bool:
        """Forget what is cached. Returns False, and forgets nothing, if a block is held."""

    def observe(self) -> Observation:
        """The current state: no tables, free blocks as (count, 0), and refcounts and free ids if they can be shown."""
