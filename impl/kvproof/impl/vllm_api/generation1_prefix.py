"""A prefix that several requests name: the first request allocates its blocks, and the others reuse them.

Only full blocks are shared, so nobody writes to a computed prefix. The prefix holds one reference to each of its blocks
from the first request until `free_prefix`.

The first request also fixes the adapter and the images on which the KV depends. A request with others is refused, since
the blocks hold different KV.

Source: vLLM 0.3, vllm/prefix.py.
"""

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
        return self.length // self.block_size

    def get_length(self) -> int:
        """Number of tokens of the prefix, a multiple of the block size."""
        return self.length

    def get_block_numbers(self) -> list[int]:
        """Its block numbers; [] before it is allocated."""
        return self.block_ids[:]

    def require_of(self, seq: SequenceLike) -> None:
        """Raises InvalidValueError unless the sequence begins with this prefix, with the same adapter and images."""
        if tuple(seq.get_token_ids()[: self.length]) != self.token_ids:
            raise InvalidValueError("prefix", self.length, f"sequence {seq.seq_id} does not begin with its tokens")
        if self.allocated and self._extras != self._extras_of(seq):
            raise InvalidValueError("prefix", self.length, f"sequence {seq.seq_id} has another adapter or image")

    def new_table(self, blocks: DeviceBlocks, seq: SequenceLike) -> Table:
        """Return a table that begins with the prefix. Raises NoFreeBlocksError; then nothing has changed."""
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
        """Release the references of the prefix itself; requests that use its blocks keep them."""
        blocks.release(self.block_ids)
        blocks.num_kept -= len(self.block_ids)
        self.block_ids, self.allocated, self.computed = [], False, False

    def _extras_of(self, seq: SequenceLike) -> Hashable:
        hook = block_extra_of(seq)
        return seq.extra_hash(), tuple(hook(index) if hook else None for index in range(self.get_num_blocks()))
