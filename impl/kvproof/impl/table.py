"""The block table of one sequence: its block ids and a few numbers.

`ids` has one id per logical block; the first `num_dropped` of them are the null block. Lookahead blocks lie beyond the
known tokens. Two numbers make most appends a comparison: only this table holds the blocks from the known tokens up to
slot `writable_slots`, and up to `quiet_tokens` tokens no block becomes full that the prefix cache has to register.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from .cached_blocks import NEVER_ACCESSED
from .content import Content, ContentKey
from .sequence import SequenceLike


class Table:
    """Block table of one sequence."""

    __slots__ = (
        "block_extra",
        "contents",
        "extra",
        "ids",
        "is_on_host",
        "last_accessed",
        "num_dropped",
        "num_hit_blocks",
        "num_marked_blocks",
        "num_tokens",
        "quiet_tokens",
        "writable_slots",
    )

    def __init__(self, ids: list[int], num_tokens: int) -> None:
        self.ids = ids
        self.num_tokens = num_tokens  # that have slots
        self.writable_slots = 0
        self.quiet_tokens = 0
        self.num_dropped = 0
        self.is_on_host = False
        # With a prefix cache only:
        self.contents: list[Content] = []  # of each full block; this table needs the last one
        self.extra: Hashable = None
        self.block_extra: Callable[[int], Hashable] | None = None
        self.num_hit_blocks = 0  # leading blocks that were computed at admission
        self.num_marked_blocks = 0  # leading blocks known to be computed
        self.last_accessed = NEVER_ACCESSED

    def held_ids(self) -> list[int]:
        """The ids to which this table has a reference."""
        return self.ids[self.num_dropped :] if self.num_dropped else self.ids

    def fork(self) -> Table:
        """Return the table of a child. From now on both look at refcounts before they write."""
        child = Table(self.ids.copy(), self.num_tokens)
        self.writable_slots = 0
        child.quiet_tokens = self.quiet_tokens
        child.num_dropped = self.num_dropped
        child.is_on_host = self.is_on_host
        child.contents = self.contents.copy()
        child.extra, child.block_extra = self.extra, self.block_extra
        child.num_hit_blocks = self.num_hit_blocks
        child.num_marked_blocks = self.num_marked_blocks
        child.last_accessed = self.last_accessed
        return child

    @property
    def num_unmarked(self) -> int:
        """Number of full blocks that are not known to be computed."""
        return len(self.contents) - self.num_marked_blocks

    def last_content(self) -> Content | None:
        """The content of the last full block; None if no block is full."""
        return self.contents[-1] if self.contents else None


def block_extra_of(seq: SequenceLike) -> Callable[[int], Hashable] | None:
    """The optional method `block_extra` of a sequence: what the KV of one block depends on in addition to tokens."""
    hook: Callable[[int], Hashable] | None = getattr(seq, "block_extra", None)
    return hook


def contents_of(
    before: Content | None,
    tokens: list[int],
    start: int,
    stop: int,
    block_size: int,
    extra: Hashable,
    block_extra: Callable[[int], Hashable] | None,
    intern: Callable[[ContentKey], Content | None],
) -> list[Content]:
    """Return the contents of the full blocks `start` to `stop - 1`, up to the first for which `intern` returns None."""
    found: list[Content] = []
    low = start * block_size
    for index in range(start, stop):
        high = low + block_size
        beside = None if block_extra is None else block_extra(index)
        content = intern((before, tuple(tokens[low:high]), extra, beside))
        if content is None:
            break
        found.append(content)
        before, low = content, high
    return found


def common_prefix(lists: Sequence[Sequence[int]]) -> list[int]:
    """Return the leading ids that all lists share; [] if there is no list."""
    if not lists:
        return []
    shortest = min(lists, key=len)
    for index, block_id in enumerate(shortest):
        if any(ids[index] != block_id for ids in lists):
            return list(shortest[:index])
    return list(shortest)
