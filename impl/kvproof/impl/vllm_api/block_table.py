"""The block table of a sequence: its chain of block objects, and the list of their ids.

With a sliding window, blocks that no later token can read are replaced by the null block. The chain of `prev_block` is
cut there, so that their objects can be reused. A dropped block is freed before the null block is taken.

An append counts the blocks that it needs before it changes anything: missing blocks, a copy of every shared block that
it writes (lookahead blocks too, since a worker writes there), and the null block if it is the first to need it. Tokens
come before lookahead, and a new block that they fill is allocated by its content, so that no block is taken, and none
is evicted, for content that is cached.

Source: vLLM 0.9, vllm/core/block/block_table.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ..block_arithmetic import num_blocks_for
from ..device_blocks import Device
from ..errors import InvalidValueError, NoFreeBlocksError, require_at_least
from .device_allocator import CpuGpuBlockAllocator, NullBlock

Blocks = list[Any]
Ids = list[int]


class BlockList:
    """The blocks of a table in order, and the list of their ids, which always agree."""

    def __init__(self, blocks: Sequence[Any] = ()) -> None:
        self._blocks: list[Any] = []
        self._ids: list[int] = []
        self.update(blocks)

    def update(self, blocks: Sequence[Any]) -> None:
        """Replace all blocks. Raises InvalidValueError if one has no id."""
        self._ids = [self._id_of(block) for block in blocks]
        self._blocks = list(blocks)

    def append(self, block: Any) -> None:
        """Add a block at the end. Raises InvalidValueError if it has no id."""
        self._ids.append(self._id_of(block))
        self._blocks.append(block)

    def append_token_ids(self, block_index: int, token_ids: Sequence[int]) -> None:
        """Append tokens to one block, whose id may change."""
        block = self._blocks[block_index]
        block.append_token_ids(token_ids)
        self._ids[block_index] = self._id_of(block)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, block_index: int) -> Any:
        return self._blocks[block_index]

    def __setitem__(self, block_index: int, block: Any) -> None:
        self._ids[block_index] = self._id_of(block)
        self._blocks[block_index] = block

    def reset(self) -> None:
        self._blocks, self._ids = [], []

    def list(self) -> Blocks:
        """The blocks. It is the live list: read only."""
        return self._blocks

    def ids(self) -> Ids:
        """The ids of the blocks. It is the live list: read only."""
        return self._ids

    @staticmethod
    def _id_of(block: Any) -> int:
        if block.block_id is None:
            raise InvalidValueError("block_id", None, "a block in a table must have an id")
        return int(block.block_id)


class BlockTable:
    """The blocks of one sequence.

    max_block_sliding_window: number of blocks, before that of the newest computed token, that the window needs; None
    for no window. A table with a window needs `num_computed_slots` in every append.
    """

    def __init__(
        self,
        block_size: int,
        block_allocator: CpuGpuBlockAllocator,
        _blocks: Sequence[Any] | None = None,
        max_block_sliding_window: int | None = None,
    ) -> None:
        require_at_least("block_size", block_size, 1)
        self._block_size, self._allocator = block_size, block_allocator
        self._blocks = BlockList(_blocks or ())
        self._max_block_sliding_window = max_block_sliding_window
        self._num_full_slots = sum(len(block.token_ids) for block in self._blocks.list())
        self._num_dropped = 0

    @staticmethod
    def get_num_required_blocks(token_ids: Sequence[int], block_size: int, num_lookahead_slots: int = 0) -> int:
        """Number of blocks for these tokens and lookahead slots: ceil((tokens + lookahead) / block size)."""
        return num_blocks_for(len(token_ids) + num_lookahead_slots, block_size)

    def allocate(self, token_ids: Sequence[int], device: Device = Device.GPU, extra_hash: Hashable = None) -> None:
        """Take blocks for the first tokens of the sequence.

        Raises InvalidValueError if the table has blocks already or there is no token, and NoFreeBlocksError. In both
        cases nothing has changed.
        """
        if len(self._blocks):
            raise InvalidValueError("blocks of the table", len(self._blocks), "only an empty table can be allocated")
        if not token_ids:
            raise InvalidValueError("number of tokens", 0, "a table needs at least one token")
        size = self._block_size
        num_full = len(token_ids) // size * size
        chunks = [token_ids[low : low + size] for low in range(0, num_full, size)]
        blocks = self._allocator.allocate_immutable_blocks(None, chunks, device, extra_hash)
        if num_full < len(token_ids):
            try:
                tail = self._allocator.allocate_mutable_block(blocks[-1] if blocks else None, device, extra_hash)
            except NoFreeBlocksError:
                for block in reversed(blocks):
                    self._allocator.free(block)
                raise
            tail.append_token_ids(token_ids[num_full:])
            blocks.append(tail)
        self.update(blocks)

    def update(self, blocks: Sequence[Any]) -> None:
        """Replace the blocks, for example after a swap."""
        self._blocks.update(blocks)
        self._num_dropped = next((i for i, b in enumerate(blocks) if not isinstance(b, NullBlock)), len(blocks))
        dropped = self._num_dropped * self._block_size
        self._num_full_slots = dropped + sum(len(block.token_ids) for block in blocks[self._num_dropped :])

    def append_token_ids(
        self,
        token_ids: Sequence[int],
        num_lookahead_slots: int = 0,
        num_computed_slots: int | None = None,
        extra_hash: Hashable = None,
    ) -> None:
        """Append tokens and reserve lookahead slots. With a window, first drop the blocks that no later token reads.

        num_computed_slots: tokens whose KV is computed. Raises NoFreeBlocksError, and then nothing has changed, and
        InvalidValueError if the table is not allocated or has a window and `num_computed_slots` is missing.
        """
        if not len(self._blocks):
            raise InvalidValueError("blocks of the table", 0, "it must be allocated first")
        require_at_least("num_lookahead_slots", num_lookahead_slots, 0)
        if not token_ids and not num_lookahead_slots:
            self._drop(self._first_kept(num_computed_slots))
            return
        first, kept = self._num_full_slots // self._block_size, self._first_kept(num_computed_slots)
        end = self._num_full_slots + len(token_ids) + num_lookahead_slots
        stop = -(-end // self._block_size)
        shared = [i for i in range(first, min(stop, len(self._blocks))) if self._is_shared(i)]
        num_needed = len(shared) + max(0, stop - len(self._blocks))
        num_free = self._allocator.get_num_free_blocks(Device.GPU)
        if kept > self._num_dropped:
            num_needed += not self._allocator.has_null_block
            num_free += sum(not self._is_shared(index) for index in range(self._num_dropped, kept))
        if num_needed > num_free:
            raise NoFreeBlocksError(num_needed, num_free, Device.GPU.name)

        self._drop(kept)
        written = 0
        while written < len(token_ids):
            slot = self._num_full_slots % self._block_size
            chunk = token_ids[written : written + self._block_size - slot]
            self._write(self._num_full_slots // self._block_size, chunk, extra_hash)
            self._num_full_slots += len(chunk)
            written += len(chunk)
        for index in shared:
            if index * self._block_size >= self._num_full_slots:  # no token was written there
                block = self._blocks[index]
                block.block_id = self._allocator.cow_block_if_not_appendable(block)
                self._blocks[index] = block
        self.ensure_num_empty_slots(num_lookahead_slots, extra_hash)

    def _write(self, index: int, chunk: Sequence[int], extra_hash: Hashable) -> None:
        """Write tokens that lie in one block, which may have to be added first."""
        if index < len(self._blocks):
            self._blocks.append_token_ids(index, chunk)
            return
        last = self._blocks[index - 1]
        if len(chunk) == self._block_size:
            self._blocks.append(self._allocator.allocate_immutable_block(last, chunk, Device.GPU, extra_hash))
        else:
            self._blocks.append(self._allocator.allocate_mutable_block(last, Device.GPU, extra_hash))
            self._blocks.append_token_ids(index, chunk)

    def ensure_num_empty_slots(self, num_empty_slots: int, extra_hash: Hashable = None) -> None:
        """Add blocks until `num_empty_slots` slots are empty. If that raises NoFreeBlocksError, nothing has changed."""
        missing = num_empty_slots - (len(self._blocks) * self._block_size - self._num_full_slots)
        num_blocks = -(-missing // self._block_size)
        if num_blocks <= 0:
            return
        num_free = self._allocator.get_num_free_blocks(Device.GPU)
        if num_blocks > num_free:
            raise NoFreeBlocksError(num_blocks, num_free, Device.GPU.name)
        for _ in range(num_blocks):
            last = self._blocks[len(self._blocks) - 1]
            self._blocks.append(self._allocator.allocate_mutable_block(last, Device.GPU, extra_hash))

    def fork(self) -> BlockTable:
        """Return a table that shares every block. Null blocks are shared too; they have no refcount."""
        held = self._blocks.list()[self._num_dropped :]
        forked = self._blocks.list()[: self._num_dropped]
        if held:
            forked = forked + self._allocator.fork(held[-1])[-len(held) :]
        child = BlockTable(self._block_size, self._allocator, None, self._max_block_sliding_window)
        child.update(forked)
        return child

    def free(self) -> None:
        """Release every block; the table is empty afterwards."""
        for block in reversed(self._blocks.list()):
            self._allocator.free(block)
        self._blocks.reset()
        self._num_full_slots = self._num_dropped = 0

    def get_unseen_token_ids(self, sequence_token_ids: Sequence[int]) -> Sequence[int]:
        """Return the tokens of a sequence that have no slot in this table yet."""
        return sequence_token_ids[self._num_full_slots :]

    def get_num_blocks_touched_by_append_slots(self, token_ids: Sequence[int], num_lookahead_slots: int) -> int:
        """Number of blocks that appending these tokens and lookahead slots writes, including new ones."""
        num_slots = len(token_ids) + num_lookahead_slots
        if num_slots == 0:
            return 0
        first = self._num_full_slots // self._block_size
        return num_blocks_for(self._num_full_slots + num_slots, self._block_size) - first

    @property
    def physical_block_ids(self) -> list[int]:
        """The ids of the blocks, including null blocks. It is the live list: read only."""
        return self._blocks.ids()

    @property
    def blocks(self) -> list[Any]:
        """The blocks. It is the live list: read only."""
        return self._blocks.list()

    @property
    def num_full_slots(self) -> int:
        """Number of slots that hold a token, including those that the window has left."""
        return self._num_full_slots

    def _get_all_token_ids(self) -> list[int]:
        return [token for block in self._blocks.list() for token in block.token_ids]  # the name that it has in V0

    def _is_shared(self, index: int) -> bool:
        return self._allocator.get_refcount(self._blocks[index].block_id) > 1

    def _first_kept(self, num_computed_slots: int | None) -> int:
        """Number of leading blocks that the window has left; 0 or less if there are none."""
        if self._max_block_sliding_window is None:
            return 0
        if num_computed_slots is None:
            raise InvalidValueError("num_computed_slots", None, "a table with a window needs it")
        return min(num_computed_slots, self._num_full_slots) // self._block_size - self._max_block_sliding_window

    def _drop(self, kept: int) -> None:
        for index in range(self._num_dropped, kept):
            block = self._blocks[index]
            if index + 1 < len(self._blocks):
                self._blocks[index + 1].forget_prefix()
            self._allocator.free(block)
            self._blocks[index] = self._allocator.allocate_or_get_null_block()
            self._num_dropped = index + 1
