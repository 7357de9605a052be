"""The ring: a sliding window of W blocks, in which logical block i takes the place of logical block i - W.

Position p lies in slot p mod (W times the block size) of the ring. So when a token at p has been written, the ring
holds exactly the positions from p - W * block_size + 1 to p: the slots behind it in its block still hold the oldest
ones, and attention, which does not ask for the order of slots, may read all of them. Two things follow. A block that
takes a second place and is shared must be *copied* before it is written, as any other. And nothing else is lost: the
window is W * block_size tokens, the token itself included.

A table keeps one id per logical block, but holds only the last W: the entry that the ring has left is no entry any
more, and its id moves to the end. So each block is in one held entry at most, and counts, forks, frees and swaps of
the core need not know of rings. Where the block at the end is shared, the core's own copy-on-write replaces it.

A prompt longer than the ring is computed in one step, whose attention does not read the ring, and only its last
W * block_size tokens are written there. A table grows by one logical block at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..block_arithmetic import num_blocks_for
from ..content import NO_BLOCK
from ..device_blocks import DeviceBlocks
from ..errors import InvalidValueError
from ..growth import Growth, Pairs
from ..sequence import SequenceLike
from ..table import Table


def ring_table(blocks: DeviceBlocks, num_tokens: int, block_size: int, num_ring_blocks: int) -> Table:
    """A table for a prompt: the ring takes what admission has counted, and no more."""
    num_blocks = num_blocks_for(num_tokens, block_size)
    num_held = min(num_blocks, num_ring_blocks)
    table = Table([NO_BLOCK] * (num_blocks - num_held) + blocks.take(num_held), num_tokens)
    table.num_dropped = num_blocks - num_held
    return table


def ring_ids(table: Table, num_ring_blocks: int) -> list[int]:
    """One id per logical block, those of the ring repeated: what stands at i stood at i - W, too."""
    ids, first = table.ids[:], table.num_dropped
    for index in range(first - 1, -1, -1):
        ids[index] = ids[index + num_ring_blocks]
    return ids


class RingGrowth(Growth):
    """Appends on ring tables: turn the ring if a new logical block needs it, then append as ever."""

    __slots__ = ("num_ring_blocks",)

    def __init__(self, blocks: DeviceBlocks, block_size: int, num_ring_blocks: int) -> None:
        super().__init__(blocks, block_size, None)
        self.num_ring_blocks = num_ring_blocks

    def first_kept(self, table: Table, seq: SequenceLike) -> int:
        return table.num_dropped

    def num_needed(self, members: Sequence[tuple[Table, SequenceLike]], num_lookahead_slots: int) -> int:
        turned: list[Table] = []
        try:
            for table, seq in members:
                if self._turn(table, seq):
                    turned.append(table)
            return super().num_needed(members, num_lookahead_slots)
        finally:
            for table in turned:
                _turn_back(table)

    def append(self, table: Table, seq: SequenceLike, num_lookahead_slots: int) -> Pairs:
        is_turned = self._turn(table, seq)
        try:
            return super().append(table, seq, num_lookahead_slots)
        except BaseException:
            if is_turned:
                _turn_back(table)
            raise

    def _turn(self, table: Table, seq: SequenceLike) -> bool:
        """Give the oldest block its second place, if there is a new logical block and the ring is full."""
        num_new = -(-len(seq.get_token_ids()) // self.block_size) - len(table.ids)
        if num_new > 1:
            raise InvalidValueError("new logical blocks", num_new, "a ring grows by one at a time")
        if num_new < 1 or len(table.ids) < self.num_ring_blocks:
            return False
        ids, first = table.ids, table.num_dropped
        ids.append(ids[first])
        ids[first] = NO_BLOCK
        table.num_dropped = first + 1
        return True


def _turn_back(table: Table) -> None:
    table.num_dropped -= 1
    table.ids[table.num_dropped] = table.ids.pop()
