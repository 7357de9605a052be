"""Admission of a prompt: whether there is room, and its table.

Let R be the required blocks, W the watermark and U the number of blocks that tables can have. The answer is NEVER if
U - R < W, OK if free - R >= W, else LATER. R counts the whole prompt and the lookahead; neither hits nor the window are
subtracted, since a prompt gets all its blocks at once. In an idle pool free = U, so the answer is never LATER.

The full blocks of a prompt take the block that is registered under their content, computed or not. The leading
*computed* ones are its hit. The prompt computes all others itself; into a shared block it writes the same KV as every
other holder.

Source: vLLM 0.9, vllm/core/block_manager.py, can_allocate and can_swap_in.
"""

import enum

from .block_arithmetic import num_blocks_for
from .cached_blocks import CachedBlocks
from .content import NO_BLOCK, Content
from .device_blocks import DeviceBlocks
from .errors import NoFreeBlocksError
from .sequence import SequenceLike
from .table import Table, block_extra_of, contents_of


class AllocStatus(enum.Enum):
    """The answer to whether a call can be made."""

    OK = enum.auto()  # the call succeeds now
    LATER = enum.auto()  # not now; it may succeed when others have released blocks
    NEVER = enum.auto()  # this pool can never serve the demand


def admission(num_required: int, num_free: int, num_usable: int, watermark_blocks: int) -> AllocStatus:
    """Return the answer for a prompt that requires `num_required` blocks."""
    if num_usable - num_required < watermark_blocks:
        return AllocStatus.NEVER
    return AllocStatus.OK if num_free - num_required >= watermark_blocks else AllocStatus.LATER


def admission_from_host(
    num_needed: int, num_free: int, num_usable: int, watermark_blocks: int, is_idle: bool
) -> AllocStatus:
    """Return the answer for a swapped group that needs `num_needed` blocks on the GPU.

    `num_free` leaves out the blocks that a swap-in of this step must not use.
    """
    if num_needed > num_usable:
        return AllocStatus.NEVER
    if is_idle:
        return AllocStatus.OK  # the watermark keeps blocks for others, and there are none
    return AllocStatus.OK if num_free - num_needed >= watermark_blocks else AllocStatus.LATER


def new_table(blocks: DeviceBlocks, seq: SequenceLike, block_size: int) -> Table:
    """Return a table for the known tokens of a sequence. Raises NoFreeBlocksError; then nothing has changed."""
    if isinstance(blocks, CachedBlocks):
        return _new_cached_table(blocks, seq, block_size)
    num_tokens = len(seq.get_token_ids())
    return Table(blocks.take(num_blocks_for(num_tokens, block_size)), num_tokens)


def find_contents(cache: CachedBlocks, seq: SequenceLike, block_size: int) -> list[Content]:
    """Return the contents of the leading full blocks of a sequence, up to the first that the index does not have."""
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
    """Number of leading contents that lie in computed blocks."""
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
    # The index has no content after the first that it does not have, since it would have that one too.
    last = found[-1] if found else None
    new = contents_of(last, tokens, len(found), num_full, block_size, extra, block_extra, cache.contents.add)
    contents = found + new
    if contents:  # before any eviction, since an eviction forgets contents without a need
        cache.contents.need(contents[-1])
    for block_id in present:
        cache.pin(block_id)
    num_hit_blocks = num_leading_computed(cache, found)
    fresh = cache.take(num_fresh)
    next_fresh = iter(fresh)
    ids = []
    for content in found:
        block_id = content.block_id
        if block_id == NO_BLOCK:
            block_id = next(next_fresh)
            cache.register(block_id, content)
        ids.append(block_id)
    rest = list(next_fresh)
    cache.register_new(rest, new)
    ids += rest
    cache.metric.query_many(num_full, len(present))
    table = Table(ids, len(tokens))
    table.contents, table.extra, table.block_extra = contents, extra, block_extra
    table.num_hit_blocks = table.num_marked_blocks = num_hit_blocks
    return table
