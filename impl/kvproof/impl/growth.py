"""How one table grows: the blocks that an append drops, exchanges, copies and takes.

A table had `seen` tokens, and its sequence now has `known`. The append writes the slots from `seen` to
`known + lookahead - 1`, in these steps:

1. *Drop*: blocks that lie wholly outside the sliding window are replaced by the null block.
2. *Exchange* (prefix cache): a block that becomes full is given up for the computed block that is registered under its
   content, if there is one. A computed block holds every slot that this sequence has computed before, and the slots
   that the sequence writes in this step get the bytes that they have already. The block that was given up is not used
   again by the same append; if too few blocks are left then, nothing is exchanged.
3. *Copy on write*: an existing block in the written range that others hold too is replaced by a new one, and the pair
   (old, new) is returned. This includes lookahead blocks, because a worker writes junk there.
4. *Take*: missing blocks are taken.
5. *Register* (prefix cache): blocks that became full are found under their content from now on.

The need is counted before anything is changed, so an append that cannot be served changes nothing.

Why the copies of one step may be made in any order: a target was free and has refcount 1, and a source still has a
holder after the copy. Two copies could touch only if a source became free within the step and was then a target. The
last holder of a source is a fork in the same group, and a group appends, or leaves, as a whole. So only the append of
that holder could give the source up: not by the window, since the block is the tail of the table; not by a copy, since
then another holder is left; but by an exchange. Therefore a block that was the source of a copy is never exchanged
(`was_copied`). Within one append the exchange comes first and makes the copy unnecessary, so no block of a copy is
exchanged there either.
"""

import sys
from collections.abc import Sequence

from .cached_blocks import CachedBlocks
from .content import NO_BLOCK, Content
from .device_blocks import NO_NULL_BLOCK, DeviceBlocks
from .errors import NoFreeBlocksError
from .sequence import SequenceLike
from .table import Table, contents_of

Pairs = list[tuple[int, int]]
NO_LIMIT = sys.maxsize


class Growth:
    """Appends to the tables of one device."""

    __slots__ = ("block_size", "blocks", "cache", "max_block_sliding_window")

    def __init__(self, blocks: DeviceBlocks, block_size: int, max_block_sliding_window: int | None) -> None:
        self.blocks = blocks
        self.cache = blocks if isinstance(blocks, CachedBlocks) else None
        self.block_size = block_size
        self.max_block_sliding_window = max_block_sliding_window

    def first_kept(self, table: Table, seq: SequenceLike) -> int:
        """Number of leading blocks that are the null block after an append."""
        if self.max_block_sliding_window is None:
            return 0
        kept = seq.data.get_num_computed_tokens() // self.block_size - self.max_block_sliding_window
        return max(table.num_dropped, min(kept, table.num_tokens // self.block_size))

    def settle(self, table: Table, num_slots: int) -> None:
        """After an append: only this table holds the blocks up to `num_slots`."""
        table.writable_slots = num_slots
        if self.cache is None:
            table.quiet_tokens = NO_LIMIT
        else:
            table.quiet_tokens = (table.num_tokens // self.block_size + 1) * self.block_size - 1

    def num_needed(self, members: Sequence[tuple[Table, SequenceLike]], num_lookahead_slots: int) -> int:
        """Number of blocks that suffice for the appends of all members, in any order.

        Blocks that the window of one member frees count only for that member, since it may append last; and they count
        only for missing blocks, since of the members that share a block the last one makes no copy.
        """
        size, refcounts = self.block_size, self.blocks.refcounts
        given_up: dict[int, int] = {}
        total, num_copies, is_null_extra, is_alone = 0, 0, False, len(members) == 1
        for table, seq in members:
            ids, seen = table.ids, table.num_tokens
            known = len(seq.get_token_ids())
            end = known + num_lookahead_slots
            stop = -(-end // size)
            needed = max(0, stop - len(ids))
            if end > seen and end > table.writable_slots:
                for block_id in ids[seen // size : stop]:
                    before = given_up.get(block_id, 0)
                    if refcounts[block_id] - before > 1:
                        given_up[block_id] = before + 1
                        num_copies += 1
            if is_alone:
                needed, num_copies = needed + num_copies, 0
            kept = self.first_kept(table, seq)
            if kept > table.num_dropped:
                for block_id in ids[table.num_dropped : kept]:
                    needed -= refcounts[block_id] == 1
                is_null_extra = is_null_extra or needed >= 0
            total += max(0, needed)
        total += num_copies
        if is_null_extra and self.blocks.null_id == NO_NULL_BLOCK:
            total += 1
        return total

    def append_within_block(self, table: Table, known: int, end: int) -> Pairs | None:
        """The same as `append` if all written slots lie in one block and no block becomes full or is dropped.

        Otherwise returns None and changes nothing.
        This is the usual append of one token. Only steps 3 and 4 can have something to do.
        """
        ids, seen, size = table.ids, table.num_tokens, self.block_size
        index = seen // size
        num_slots = (index + 1) * size
        if not seen < end <= num_slots:
            return None
        blocks, pairs = self.blocks, []
        if index == len(ids):
            ids.append(blocks.take_one())
        else:
            source = ids[index]
            refcount = blocks.refcounts[source]
            if refcount > 1:
                ids[index] = target = blocks.take_one()
                blocks.refcounts[source] = refcount - 1
                pairs.append((source, target))
                if self.cache is not None:
                    self.cache.was_copied[source] = 1
        table.num_tokens, table.writable_slots = known, num_slots
        return pairs

    def append_filling(self, table: Table, tokens: list[int]) -> Pairs | None:
        """The same as `append` without lookahead, if the known tokens just fill a block that only this table holds.

        Otherwise, and if the content of this block is known already, returns None and changes nothing.
        """
        cache, known = self.cache, len(tokens)
        if cache is None or known != table.quiet_tokens + 1 or known > table.writable_slots:
            return None
        index = known // self.block_size - 1
        block_extra = table.block_extra
        beside = None if block_extra is None else block_extra(index)
        before = table.last_content()
        key = (before, tuple(tokens[known - self.block_size :]), table.extra, beside)
        content = cache.contents.add_unknown(key)
        if content is None:
            return None
        content.num_needs += 1
        if before is not None:
            before.num_needs -= 1  # the table needs the new content instead, and that needs this one
        cache.register(table.ids[index], content)
        table.contents.append(content)
        table.num_tokens = known
        self.settle(table, known)
        return []

    def append(self, table: Table, seq: SequenceLike, num_lookahead_slots: int) -> Pairs:
        """Give slots to all known tokens and the lookahead; returns the (source, target) copies to make.

        Raises NoFreeBlocksError; then nothing has changed.
        """
        blocks, refcounts, ids, size = self.blocks, self.blocks.refcounts, table.ids, self.block_size
        tokens = seq.get_token_ids()
        seen, known = table.num_tokens, len(tokens)
        end = known + num_lookahead_slots
        first, stop = seen // size, -(-end // size)
        kept = self.first_kept(table, seq)
        dropped = ids[table.num_dropped : kept]
        shared = (
            [] if end == seen else [index for index in range(first, min(stop, len(ids))) if refcounts[ids[index]] > 1]
        )
        filled, twins = self._filled(table, tokens, first, known // size)
        num_null = int(bool(dropped) and blocks.null_id == NO_NULL_BLOCK)
        num_free = blocks.num_free + sum(refcounts[block_id] == 1 for block_id in dropped)
        num_missing = max(0, stop - len(ids))
        if twins:
            num_saved = sum(index >= len(ids) or index in shared for index in twins)
            num_revived = sum(refcounts[block_id] == 0 for block_id in twins.values())
            if len(shared) + num_missing - num_saved > num_free - num_revived:
                twins = {}
            else:
                num_missing -= sum(index >= len(ids) for index in twins)
        copied = [index for index in shared if index not in twins]
        num_fresh = len(copied) + num_missing
        if num_fresh + num_null > num_free:
            if self.cache is not None and filled:
                self.cache.contents.release(filled[-1])
            raise NoFreeBlocksError(num_fresh + num_null, num_free, blocks.name)

        if self.cache is not None:
            for block_id in twins.values():
                self.cache.pin(block_id)
        blocks.release(dropped)
        if dropped:
            ids[table.num_dropped : kept] = [blocks.null_block()] * len(dropped)
            table.num_dropped = kept
        fresh = iter(blocks.take(num_fresh))
        pairs, given_up = [], []
        for index in range(first, stop):
            if index >= len(ids):
                ids.append(twins[index] if index in twins else next(fresh))
            elif index in twins:
                given_up.append(ids[index])
                ids[index] = twins[index]
            elif index in copied:
                given_up.append(ids[index])
                ids[index] = next(fresh)
                pairs.append((given_up[-1], ids[index]))
        blocks.release(given_up)
        table.num_tokens = known
        if self.cache is not None:
            self._register(self.cache, table, filled, first, twins, pairs)
        self.settle(table, stop * size if end > seen else table.writable_slots)
        return pairs

    def _filled(self, table: Table, tokens: list[int], first: int, stop: int) -> tuple[list[Content], dict[int, int]]:
        """Return the contents of the blocks that become full, the last one needed, and the twin to take by index."""
        cache = self.cache
        twins: dict[int, int] = {}
        if cache is None or stop <= first:
            return [], {}
        filled = contents_of(
            table.last_content(),
            tokens,
            first,
            stop,
            self.block_size,
            table.extra,
            table.block_extra,
            cache.contents.intern,
        )
        cache.contents.need(filled[-1])
        for index, content in enumerate(filled, first):
            twin = content.block_id
            if (
                twin != NO_BLOCK
                and cache.computed[twin]
                and not (index < len(table.ids) and cache.was_copied[table.ids[index]])
            ):
                twins[index] = twin
        return filled, twins

    @staticmethod
    def _register(
        cache: CachedBlocks, table: Table, filled: list[Content], first: int, twins: dict[int, int], pairs: Pairs
    ) -> None:
        for source, _ in pairs:
            cache.was_copied[source] = 1
        if filled:
            cache.contents.release(table.last_content())
            table.contents.extend(filled)
            for index, content in enumerate(filled, first):
                if index not in twins:
                    cache.register(table.ids[index], content)
