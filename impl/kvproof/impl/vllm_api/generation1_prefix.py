"""A prefix that several requests name: its blocks are allocated with the first of them and reused by the others.

Only full blocks are shared, so nobody ever writes to a prefix that is computed. The prefix itself holds one reference
to each of its blocks, from the first request on until the manager is told to free it.

What its KV depends on besides tokens (adapter, images) is fixed by the first request; another that does not agree is
refused, since the blocks would hold the KV of other contents.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..device_blocks import DeviceBlocks
from ..errors import InvalidValueError, require_at_least
from ..sequence import SequenceLike
from ..table import Table, block_extra_of


class Prefix:
    """The leading full blocks of some prompts."""

    def __init__(self, token_ids: Sequence[int], block_size: int) -> None:
        require_at_least("block_size", block_size, 1)
        self.block_size = block_size
        self.length = len(token_ids) // block_size * block_size
        self.token_ids = tuple(token_ids[: self.length])
        self.block_ids: list[int] = []
        self.allocated = False
        self.computed = False
        self._extras: Hashable = None

    def get_num_blocks(self) -> int:
        """Blocks of the prefix."""
        return self.length // self.block_size

    def get_length(self) -> int:
        """Tokens of the prefix, in full blocks."""
        return self.length

    def get_block_numbers(self) -> list[int]:
        """Its blocks, [] before a request had it allocated."""
        return self.block_ids[:]

    def require_of(self, seq: SequenceLike) -> None:
        """Refuse a sequence that does not begin with this prefix."""
        if tuple(seq.get_token_ids()[: self.length]) != self.token_ids:
            raise InvalidValueError("prefix", self.length, f"sequence {seq.seq_id} does not begin with its tokens")
        if self.allocated and self._extras != self._extras_of(seq):
            raise InvalidValueError("prefix", self.length, f"sequence {seq.seq_id} has another adapter or image")

    def new_table(self, blocks: DeviceBlocks, seq: SequenceLike) -> Table:
        """A table that begins with the prefix, or `NoFreeBlocksError` and nothing changed."""
        self.require_of(seq)
        num_tokens, num_blocks = len(seq.get_token_ids()), self.get_num_blocks()
        ids = self.block_ids + blocks.take(-(-num_tokens // self.block_size) - len(self.block_ids))
        blocks.share(ids[:num_blocks])
        if not self.allocated:
            self.block_ids, self._extras = ids[:num_blocks], self._extras_of(seq)
            self.allocated = True
            blocks.num_kept += num_blocks
        return Table(ids, num_tokens)

    def give_up(self, blocks: DeviceBlocks) -> None:
        """Drop the reference that the prefix has to its blocks; requests that have them keep them."""
        blocks.release(self.block_ids)
        blocks.num_kept -= len(self.block_ids)
        self.block_ids, self.allocated, self.computed = [], False, False

    def _extras_of(self, seq: SequenceLike) -> Hashable:
        hook = block_extra_of(seq)
        return seq.extra_hash(), tuple(hook(index) if hook else None for index in range(self.get_num_blocks()))
