"""Admission of a prompt: is there room, and the first table.

With R blocks required, W the watermark and U the blocks that tables can ever have: NEVER if U - R < W, OK if
free - R >= W, else LATER. R counts the whole prompt and the lookahead, hits not subtracted, window not
subtracted: a prompt gets all its blocks at once. In an idle pool free = U, so it never says LATER.

A prompt's full blocks take whatever block is registered under their content, computed or not. The leading
*computed* ones are its hit; all the others it computes itself, into shared blocks the same KV that every
other holder writes there.
"""

from __future__ import annotations

import enum

from .block_arithmetic import num_blocks_for
from .cached_blocks import CachedBlocks
from .content import NO_BLOCK, Content
from .device_blocks import DeviceBlocks
from .errors import NoFreeBlocksError
from .sequence import SequenceLike
from .table import Table, block_extra_of, contents_of


class AllocStatus(enum.Enum):
    """Answer of an admission question."""

    OK = enum.auto()  # the call that was asked about succeeds now
    LATER = enum.auto()  # not now; when others leave, it may
    NEVER = enum.auto()  # the demand is larger than this pool can ever serve


def admission(num_required: int, num_free: int, num_usable: int, watermark_blocks: int) -> AllocStatus:
    """The answer for a prompt that requires so many blocks."""
    if num_usable - num_required < watermark_blocks:
        return AllocStatus.NEVER
    return AllocStatus.OK if num_free - num_required >= watermark_blocks else AllocStatus.LATER


def admission_from_host(
    num_needed: int, num_free: int, num_usable: int, watermark_blocks: int, is_idle: bool
) -> AllocStatus:
    """The answer for a group that needs so many blocks to come back; what may not be landed on is not free."""
    if num_needed > num_usable:
        return AllocStatus.NEVER
    if is_idle:
        return AllocStatus.OK  # the watermark keeps room for others; there are none
    return AllocStatus.OK if num_free - num_needed >= watermark_blocks else AllocStatus.LATER


def new_table(blocks: DeviceBlocks, seq: SequenceLike, block_size: int) -> Table:
    """A table for the known tokens of a sequence, or `NoFreeBlocksError` and nothing changed."""
    if isinstance(blocks, CachedBlocks):
        return _new_cached_table(blocks, seq, block_size)
    num_tokens = len(seq.get_token_ids())
    return Table(blocks.take(num_blocks_for(num_tokens, block_size)), num_tokens)


def find_contents(cache: CachedBlocks, seq: SequenceLike, block_size: int) -> list[Content]:
    """Contents of the leading full blocks of a sequence, as far as anything needs them already."""
    tokens = seq.get_token_ids()
    return contents_of(
        None,
        tokens,
        0,
        len(tokens) // block_size,
        block_size,
        seq.extra_hash(),
        block_extra_of(seq),
        cache.contents.find,
    )


def num_leading_computed(cache: CachedBlocks, found: list[Content]) -> int:
    """How many leading contents lie in computed blocks."""
    for index, content in enumerate(found):
        if content.block_id == NO_BLOCK or not cache.computed[content.block_id]:
            return index
    return len(found)


def _new_cached_table(cache: CachedBlocks, seq: SequenceLike, block_size: int) -> Table:
    tokens = seq.get_token_ids()
    num_full = len(tokens) // block_size
    found = find_contents(cache, seq, block_size)
    present = [content.block_id for content in found if content.block_id != NO_BLOCK]
    num_evictable = sum(not cache.refcounts[block_id] for block_id in present)
    num_fresh = num_blocks_for(len(tokens), block_size) - len(present)
    if num_fresh > cache.num_free - num_evictable:
        raise NoFreeBlocksError(num_fresh, cache.num_free - num_evictable, cache.name)

    extra, block_extra = seq.extra_hash(), block_extra_of(seq)
    contents = list(found)
    if num_full > len(found):
        contents += contents_of(
            found[-1] if found else None,
            tokens,
            len(found),
            num_full,
            block_size,
            extra,
            block_extra,
            cache.contents.intern,
        )
    if contents:  # before any eviction, which would forget unneeded contents
        cache.contents.need(contents[-1])
    for block_id in present:
        cache.pin(block_id)
    num_hit_blocks = num_leading_computed(cache, found)
    fresh = cache.take(num_fresh)
    next_fresh = iter(fresh)
    ids = []
    for content in contents:
        block_id = content.block_id
        if block_id == NO_BLOCK:
            block_id = next(next_fresh)
            cache.register(block_id, content)
        ids.append(block_id)
    ids.extend(next_fresh)
    cache.metric.query_many(num_full, len(present))
    table = Table(ids, len(tokens))
    table.contents, table.extra, table.block_extra = contents, extra, block_extra
    table.num_hit_blocks = table.num_marked_blocks = num_hit_blocks
    return table
