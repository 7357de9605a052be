"""What a block pool must offer to be judged at pool level: ids, and what cached blocks are found by.

A pool knows no sequences. Whoever holds blocks (a *holder*, here as there) got them by `allocate`, or by `share` after
it found them or knew another holder's, and gives up each by `free`. A block stands for one page: content is told as
the list of all pages up to it, a small number each, and two blocks have the same content when those lists are equal.
"""

from dataclasses import dataclass
from typing import Protocol

from kvproof.check.protocol.manager import Assumption, Capabilities, Config, Observation, Refused


@dataclass(frozen=True)
class PoolConfig(Config):
    """One configuration of a pool: `num_gpu_blocks` blocks of one page, with or without `caching`."""

    block_size: int = 1


class PoolSubject(Protocol):
    """A block pool behind an adapter. Of its capabilities `fork` (blocks are shared), `caching` and `reset` matter."""

    name: str
    capabilities: Capabilities
    assumptions: tuple[Assumption, ...]

    def open(self, config: PoolConfig) -> None:
        """Make a new pool, every block free. Raises Unsupported."""

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        """So many blocks without content, each with one reference. It must not refuse what it counts as free."""

    def share(self, blocks: list[int]) -> None:
        """One more reference to each block: of a live holder, or just found."""

    def free(self, blocks: list[int]) -> None:
        """One reference less for each mention of a block; it is mentioned twice where two holders give up at once."""

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        """The KV of each block is computed: block i can be found under `pages[: i + 1]`."""

    def find(self, pages: list[int]) -> list[int]:
        """The blocks cached for the longest prefix of these pages that is there. Changes nothing."""

    def reset_cache(self) -> bool:
        """Forget what is cached; False if a block is held."""

    def observe(self) -> Observation:
        """Free blocks as (count, 0), refcounts and free ids if they can be seen; no tables. Changes nothing."""
