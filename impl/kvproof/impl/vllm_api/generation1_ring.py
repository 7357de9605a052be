"""The ring: a sliding window of W blocks, in which logical block i takes the place of logical block i - W.

Position p lies in slot p mod (W times the block size) of the ring. So when a token at p has been written, the ring
holds exactly the positions from p - W * block_size + 1 to p: the slots after it in its block still hold the oldest
positions, and attention, for which the order of slots does not matter, may read all of them. So the window is
W * block_size tokens, including the token itself. And a shared block that is used a second time must be *copied* before
it is written, as any shared block.

A table has one id per logical block, but references only the last W of them: when the ring turns, the id of the oldest
referenced entry moves to the end. So each block is referenced by at most one entry of a table, and counts, forks, frees
and swaps need to know nothing about rings. If the block at the end is shared, copy-on-write replaces it as usual.

A prompt that is longer than the ring is computed in one step. The attention of that step does not read the ring, and
only the last W * block_size tokens are written to it. A table grows by one logical block at a time.

Source: vLLM 0.2 to 0.6, vllm/core/block_manager_v1.py, `block_sliding_window`.
"""

from collections.abc import Sequence

from ..block_arithmetic import num_blocks_for
from ..content import NO_BLOCK
from ..device_blocks import DeviceBlocks
from ..errors import InvalidValueError
from ..growth import Growth, Pairs
from ..sequence import SequenceLike
from ..table import Table


def ring_table(blocks: DeviceBlocks, num_tokens: int, block_size: int, num_ring_blocks: int) -> Table:
    """Return a table for a prompt; the ring takes exactly the blocks that admission has counted."""
    num_blocks = num_blocks_for(num_tokens, block_size)
    num_held = min(num_blocks, num_ring_blocks)
    table = Table([NO_BLOCK] * (num_blocks - num_held) + blocks.take(num_held), num_tokens)
    table.num_dropped = num_blocks - num_held
    return table


def ring_ids(table: Table, num_ring_blocks: int) -> list[int]:
    """One id per logical block; those of the ring repeat: entry i equals entry i - W."""
    ids, first = table.ids[:], table.num_dropped
    for index in range(first - 1, -1, -1):
        ids[index] = ids[index + num_ring_blocks]
    return ids


class RingGrowth(Growth):
    """Appends to ring tables: turns the ring if a new logical block needs it, then appends as usual."""

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
        """Reuse the oldest block for the new logical block, if there is one and the ring is full."""
        num_new = -(-len(seq.get_token_ids()) // self.block_size) - len(table.ids)
        if num_new > 1:
            raise InvalidValueError("new logical blocks", num_new, "a ring grows by one block at a time")
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
