"""The protocol of a block pool: the calls that it must offer to be judged, with block ids only.

A pool knows no sequences. A *holder* got blocks by `allocate`, or by `share` after it found them in the cache or took
over another holder's, and gives each of them up by `free`. A block stands for one page. Its content is named by the
list of all pages up to it, small numbers; two blocks have equal contents if these lists are equal.

Events. A pool may report what it caches and forgets, for routers that send a prompt to the engine that has its prefix.
A pool that declares `events` has a call of this name: it returns the list of what was reported since the last such
call, in order, each as `Stored`, `Removed` or `Cleared`. The names in them are the pool's own: texts, of which several
may mean one content. Events are judged of pools that declare `lost_hits=0`.

Block ids and errors are as in `protocol.manager`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from msgspec import UNSET, UnsetType

from kvproof.check.protocol.adapter_check import RequiredCalls, calls_of
from kvproof.check.protocol.capabilities import Capabilities, PoolCan
from kvproof.check.protocol.manager import Assumption, Config, Observation, Refused
from kvproof.check.protocol.operations import (
    Ids,
    Positive,
    TypedOperation,
    count,
    one_or_one_less,
    simpler_tokens,
)


@dataclass(frozen=True)
class PoolConfig(Config):
    """One configuration of a pool: `num_gpu_blocks` blocks of one page, with or without `caching`."""

    block_size: int = 1


class Stored(NamedTuple):
    """A block of this name is cached: the one named `parent`, reported before it (None: no one), and this page."""

    name: str
    parent: str | None
    page: int


class Removed(NamedTuple):
    """No block of this name is cached any more."""

    name: str


class Cleared(NamedTuple):
    """No block is cached any more."""


PoolEvent = Stored | Removed | Cleared


class PoolSubject(Protocol):
    """A block pool behind an adapter.

    Of the capabilities of all levels, those of `PoolCan` are used.
    """

    name: str
    assumptions: tuple[Assumption, ...]

    @property
    def capabilities(self) -> PoolCan:
        """What it declares that it can do."""

    def open(self, config: PoolConfig) -> None:
        """Make a new pool in which every block is free, and forget the old one. Raises Unsupported."""

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        """Take blocks without content, and hold one reference to each. It may only refuse if fewer are free."""

    def share(self, blocks: list[int]) -> None:
        """Hold one more reference to each block. Each is held already, or was just found in the cache."""

    def free(self, blocks: list[int]) -> None:
        """Give up one reference for each mention of a block. A block that two holders give up at once occurs twice.

        A pool that declares `ignores_double_free` is also called for blocks that nobody holds, and changes nothing.
        """

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        """The KV of the blocks is computed. From now on block i can be found under `pages[: i + 1]`."""

    def find(self, pages: list[int]) -> list[int]:
        """The blocks that are cached for the longest cached prefix of the pages. Changes nothing."""

    def reset_cache(self) -> bool:
        """Forget what is cached. Returns False, and forgets nothing, if a block is held."""

    def observe(self) -> Observation:
        """The current state: no tables, free blocks as (count, 0), and refcounts and free ids if they can be shown."""


class ReportingPool(PoolSubject, Protocol):
    """A pool that reports what it caches and forgets (`events`)."""

    def events(self) -> list[PoolEvent]:
        """What was reported since the last such call, in order."""


POOL_CALLS = RequiredCalls(
    "pool subject",
    calls_of(PoolSubject),
    declared=(("events", "reports events", calls_of(ReportingPool)),),
    marks=("allocate", "free", "find"),
    without=("admit",),
)


# Operations -------------------------------------------------------------------------------------------------------


class PoolOperation(TypedOperation, frozen=True):
    """What holders of blocks ask of a block pool."""


class Take(PoolOperation, tag="take", frozen=True):
    """A new holder takes blocks without content."""

    holder: int
    num_blocks: Positive

    def simpler(self) -> Iterator["Take"]:
        yield from (self.changed(num_blocks=number) for number in one_or_one_less(self.num_blocks))

    def text(self, config: Config) -> str:
        return f"take(holder {self.holder}, {count(self.num_blocks, 'block')})"


def pages_text(pages: Sequence[int]) -> str:
    """Pages with their noun."""
    return f"{'page' if len(pages) == 1 else 'pages'} {' '.join(map(str, pages))}"


class WithPages(PoolOperation, frozen=True):
    """A new holder asks for the blocks of a list of pages."""

    holder: int
    pages: Ids

    def simpler(self) -> Iterator["WithPages"]:
        yield from (self.changed(pages=pages) for pages in simpler_tokens(self.pages))

    def text(self, config: Config) -> str:
        return f"{self.name()}(holder {self.holder}, {pages_text(self.pages)})"


class Store(WithPages, tag="store", frozen=True):
    """The new holder takes a block for each page, computes the pages, and caches the blocks."""


class Reuse(WithPages, tag="reuse", frozen=True):
    """The new holder looks the pages up, and shares the blocks that are found."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return config.caching


class Find(PoolOperation, tag="find", frozen=True):
    """Look pages up in the cache, and take nothing."""

    pages: Ids

    def simpler(self) -> Iterator["Find"]:
        yield from (self.changed(pages=pages) for pages in simpler_tokens(self.pages))

    def text(self, config: Config) -> str:
        return f"find({pages_text(self.pages)})"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return config.caching


class Share(PoolOperation, tag="share", frozen=True):
    """The new holder `child` shares every block of the holder `parent`."""

    is_optional: ClassVar[bool] = True
    parent: int
    child: int

    def text(self, config: Config) -> str:
        return f"share(holder {self.parent}, with {self.child})"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.fork


class Give(PoolOperation, tag="give", frozen=True):
    """The holder gives up its blocks, in one call together with the `others`."""

    holder: int
    others: Ids | UnsetType = UNSET

    def simpler(self) -> Iterator["Give"]:
        if self.others:
            yield Give(self.holder)
            yield from (self.changed(others=self.others[:at] + self.others[at + 1 :]) for at in range(len(self.others)))

    def text(self, config: Config) -> str:
        together = [self.holder, *(self.others or ())]
        return f"give(holder{'s' if len(together) > 1 else ''} {', '.join(map(str, together))})"


class GiveAgain(PoolOperation, tag="give_again", frozen=True):
    """The blocks that were given up last are given up once more, by mistake."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.ignores_double_free


class Forget(PoolOperation, tag="forget", frozen=True):
    """Forget what is cached."""

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.reset and config.caching
