"""Moves the blocks of a group to the other device: each distinct block once, so that sharing is kept.

The null block does not move. The content of a block moves with it, and so does its computed flag. After a swap-in the
block is registered on the GPU; after a swap-out the GPU block stays cached until it is evicted. A swap exchanges no
block for a cached one, so its mapping is one-to-one and it needs as many blocks as it moves.

A worker executes the swap-ins of a step before everything else, in any order. A target of one swap-in can become free
within the step, since the append that follows may drop or exchange a block. It must not be the target of another
swap-in of the same step, so callers pass the targets of the step as `landed`.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from .cached_blocks import CachedBlocks
from .device_blocks import DeviceBlocks
from .errors import NoFreeBlocksError
from .table import Table


def distinct_ids(tables: Iterable[Table]) -> list[int]:
    """Every block that the tables reference, once, in the order of first mention."""
    return list(dict.fromkeys(chain.from_iterable(map(Table.held_ids, tables))))


def free_landed(blocks: DeviceBlocks, landed: set[int]) -> list[int]:
    """Targets of earlier swaps of this step that are free again; [] in an idle pool, where nothing is left of them."""
    if not landed or blocks.is_idle:
        return []
    return [block_id for block_id in landed if not blocks.refcounts[block_id]]


def move(tables: Sequence[Table], source: DeviceBlocks, target: DeviceBlocks, landed: set[int]) -> dict[int, int]:
    """Move the tables; returns source id -> target id. Raises NoFreeBlocksError; then nothing has changed."""
    old_ids = distinct_ids(tables)
    held_back = sorted(block_id for block_id in free_landed(target, landed) if block_id in target.free_ids)
    if len(old_ids) > target.num_free - len(held_back):
        raise NoFreeBlocksError(len(old_ids), target.num_free - len(held_back), target.name)
    for block_id in held_back:
        target.free_ids.remove(block_id)
    new_ids = target.take(len(old_ids))
    target.free_ids.extend(held_back)
    mapping = dict(zip(old_ids, new_ids, strict=True))
    for cache in (source, target):
        if isinstance(cache, CachedBlocks):
            computed = cache.computed
            for old, new in mapping.items():
                computed[new] = computed[old]
    if sum(len(table.held_ids()) for table in tables) > len(old_ids):
        # Some blocks have several references, so the one reference that `take` gave to each is not enough.
        refcounts = target.refcounts
        for block_id in new_ids:
            refcounts[block_id] = 0
        for table in tables:
            target.share([mapping[block_id] for block_id in table.held_ids()])
    for table in tables:
        held = table.held_ids()
        moved = new_ids if held == old_ids else [mapping[block_id] for block_id in held]
        if isinstance(source, CachedBlocks):
            source.record_access(held, table.last_accessed)
        source.release(held)
        table.ids = (
            table.ids[: table.num_dropped] + moved
        )  # a new list: the old one still names the blocks that were moved
        table.writable_slots = 0
        if isinstance(target, CachedBlocks):
            computed, pairs = target.computed, zip(moved, table.contents, strict=False)
            target.mark_all_computed([pair for pair in pairs if computed[pair[0]]])
    return mapping
