"""The block manager of the first generation: the block manager with physical blocks, rings and named prefixes on top.

`BlockSpaceManagerV1` derives from the block manager: admission, appends, forks, frees, swaps and the prefix cache are
those of `block_manager`, with the same promises. It adds:

- block tables can also be read as lists of `PhysicalTokenBlock`, and block numbers count from 0 on each device;
- a sliding window is a ring of blocks (`generation1_ring`), and admission counts what the ring takes;
- a group may name a `Prefix` whose blocks are shared with other groups;
- lookahead slots are refused.

Known faults of the original, and what this manager does instead (each has a test in
`tests/impl/vllm_api/test_generation1*.py`):

- *The blocks of a ring counted once per mention*: a table holds each of them once, so that forks, frees and swaps
  count sequences.
- *A ring that reuses a block that was given up*: logical block i takes the block that i - W has now, after any copy.
- *OK, then no blocks*: admission counts for a ring or a prefix exactly what allocation takes; swap-in counts the
  waiting token and its copies.
- *A wait without end*: a sequence alone in a full pool can append where no block is needed; a pool in which nothing
  runs never says LATER, neither for the watermark nor for blocks that a prefix keeps; a group that could not come back
  is not swapped out.
- *Whole prompt computed after a chunk*: blocks are marked only when every slot is written.
- *Equal hash, other content*: contents, adapters and images are compared; a prefix is refused to another adapter.
- *A partial block shared by two requests*: only full blocks are found by content.
- *An evicted block still counts as computed*: its flag is cleared when it is taken again.
"""

from collections.abc import Hashable, Sequence

from ..admission import AllocStatus
from ..block_manager import SelfAttnBlockSpaceManager
from ..device_blocks import Device, DeviceBlocks
from ..errors import InvalidValueError, UnknownBlockError, require_at_least
from ..growth import Pairs
from ..sequence import GroupLike, SequenceLike, SequenceStatus
from ..swapping import distinct_ids
from ..table import Table, block_extra_of, common_prefix
from .generation1_blocks import CachedBlockAllocator, PhysicalTokenBlock, UncachedBlockAllocator
from .generation1_ring import RingGrowth, ring_ids, ring_table


class Prefix:
    """The leading full blocks of some prompts: the first request that names it allocates them, the others reuse them.

    Only full blocks are shared, so nobody writes to a computed prefix. The prefix holds one reference to each of its
    blocks from the first request until `free_prefix`. The first request also fixes the adapter and the images on which
    the KV depends. A request with others is refused, since the blocks hold different KV.

    Source: vLLM 0.3, vllm/prefix.py.
    """

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

    def begins(self, table: Table) -> bool:
        """Whether a table begins with the blocks of this prefix."""
        return table.ids[: len(self.block_ids)] == self.block_ids

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


class BlockSpaceManagerV1(SelfAttnBlockSpaceManager):
    """Maps logical to physical token blocks, for one model on one GPU with host memory to swap to.

    Source: vLLM 0.6, vllm/core/block_manager_v1.py, BlockSpaceManagerV1.
    """

    def __init__(
        self,
        block_size: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int,
        watermark: float = 0.01,
        sliding_window: int | None = None,
        enable_caching: bool = False,
    ) -> None:
        super().__init__(block_size, num_gpu_blocks, num_cpu_blocks, watermark, None, enable_caching)
        self.block_sliding_window: int | None = None
        if sliding_window is not None:
            require_at_least("sliding_window", sliding_window, 1)
            if enable_caching:
                raise InvalidValueError("sliding_window", sliding_window, "it cannot be combined with prefix caching")
            self.sliding_window = sliding_window
            self.block_sliding_window = -(-sliding_window // block_size)
            self._growth = RingGrowth(self._gpu, block_size, self.block_sliding_window)
        self.gpu_allocator: CachedBlockAllocator | UncachedBlockAllocator
        if self._cache is not None:
            self.gpu_allocator = CachedBlockAllocator(Device.GPU, block_size, num_gpu_blocks, _blocks=self._cache)
        else:
            self.gpu_allocator = UncachedBlockAllocator(Device.GPU, block_size, num_gpu_blocks, self._gpu)
        self.cpu_allocator = UncachedBlockAllocator(Device.CPU, block_size, num_cpu_blocks, self._host, num_gpu_blocks)
        self._prefixes: list[Prefix] = []

    # ---- admission ----

    def can_allocate(self, seq_group: GroupLike, num_lookahead_slots: int = 0) -> AllocStatus:
        """Whether the waiting sequences of the group can be given blocks for their prompt."""
        _refuse_lookahead(num_lookahead_slots)
        return super().can_allocate(seq_group)

    def _num_prompt_blocks(self, seq_group: GroupLike, num_slots: int) -> int:
        num_blocks = super()._num_prompt_blocks(seq_group, num_slots)
        if self.block_sliding_window is not None:
            num_blocks = min(num_blocks, self.block_sliding_window)
        prefix = self._prefix_of(seq_group)
        return num_blocks if prefix is None else num_blocks - len(prefix.block_ids)

    def _new_table(self, seq_group: GroupLike, seq: SequenceLike) -> Table:
        prefix = self._prefix_of(seq_group)
        if self.block_sliding_window is not None:
            return ring_table(self._gpu, len(seq.get_token_ids()), self.block_size, self.block_sliding_window)
        if prefix is None:
            return super()._new_table(seq_group, seq)
        table = prefix.new_table(self._gpu, seq)
        if prefix not in self._prefixes:
            self._prefixes.append(prefix)
        return table

    def _prefix_of(self, seq_group: GroupLike) -> Prefix | None:
        """The shared prefix that the group names, if it has the optional field `prefix`."""
        prefix: Prefix | None = getattr(seq_group, "prefix", None)
        if prefix is None or not prefix.length:
            return None
        if self.enable_caching or self.sliding_window is not None:
            raise InvalidValueError(
                "prefix", prefix.length, "it cannot be combined with prefix caching or a sliding window"
            )
        if prefix.block_size != self.block_size or (prefix.allocated and prefix not in self._prefixes):
            raise UnknownBlockError("of a prefix", "this manager")
        prefix.require_of(self._waiting(seq_group)[0])
        return prefix

    def free_prefix(self, prefix: Prefix) -> None:
        """Release the blocks of a prefix; does nothing if it has none here."""
        if prefix in self._prefixes:
            self._prefixes.remove(prefix)
            prefix.give_up(self._gpu)

    # ---- growth and swapping ----

    def can_append_slots(self, seq_group: GroupLike, num_lookahead_slots: int = 0) -> bool:
        """Whether each running sequence can append its tokens. A free block for each is always enough for one token."""
        _refuse_lookahead(num_lookahead_slots)
        return super().can_append_slots(seq_group, 0)

    def append_slots(self, seq: SequenceLike, num_lookahead_slots: int = 0) -> Pairs:
        """Give slots to the new tokens; returns the (source, target) copies to make first."""
        _refuse_lookahead(num_lookahead_slots)
        return super().append_slots(seq, 0)

    def can_swap_out(self, seq_group: GroupLike) -> bool:
        """Whether the host has room for the running sequences, and the GPU could take them back later."""
        if not super().can_swap_out(seq_group):
            return False
        if not self._prefixes:
            return True
        running = [self.tables[seq.seq_id] for seq in seq_group.get_seqs(SequenceStatus.RUNNING)]
        return len(distinct_ids(running)) + len(running) <= self._gpu.num_usable

    def can_swap_in(self, seq_group: GroupLike, num_lookahead_slots: int = 0) -> AllocStatus:
        """Whether the group can come back and append its waiting tokens at once."""
        _refuse_lookahead(num_lookahead_slots)
        return super().can_swap_in(seq_group, 0)

    def _is_idle(self) -> bool:
        """Whether no table is on the GPU: not even one that has blocks of a prefix only."""
        kept = (block_id for prefix in self._prefixes for block_id in prefix.block_ids)
        return super()._is_idle() and all(self._gpu.refcounts[block_id] == 1 for block_id in kept)

    def reset(self) -> None:
        """Release every table and every prefix. The prefix cache keeps its content."""
        self._landed.clear()
        for table in self.tables.values():
            self._give_up(table)
        for table in self.cross_tables.values():
            (self._host if table.is_on_host else self._gpu).release(table.ids)
        for prefix in self._prefixes:
            prefix.give_up(self._gpu)
        self.tables.clear()
        self._ids.clear()
        self.cross_tables.clear()
        self._prefixes.clear()

    # ---- prefix cache ----

    def mark_blocks_as_computed(self, seq_group: GroupLike, token_chunk_size: int) -> None:
        """The step about to run computes `token_chunk_size` tokens beyond those computed before.

        A prefix is computed when a sequence that holds its blocks has computed it. One that was swapped has copies.
        """
        super().mark_blocks_as_computed(seq_group, token_chunk_size)
        prefix: Prefix | None = getattr(seq_group, "prefix", None)
        if prefix is not None and prefix in self._prefixes:
            for seq in seq_group.get_seqs():
                table = self.tables.get(seq.seq_id)
                num_computed = seq.data.get_num_computed_tokens() + token_chunk_size
                if table is not None and num_computed >= prefix.length and prefix.begins(table):
                    prefix.computed = True

    def get_all_computed_blocks(self, seq: SequenceLike) -> list[int]:
        """Ids of the leading computed blocks, never the last one, so that a step has something to compute."""
        table = self.tables.get(seq.seq_id)
        return [] if table is None else table.ids[: min(self._num_computed_blocks(seq), len(table.ids) - 1)]

    def get_common_computed_block_ids(self, seqs: Sequence[SequenceLike]) -> list[int]:
        """Ids of the longest common prefix of computed blocks, never the last one of a table."""
        return common_prefix([self.get_all_computed_blocks(seq) for seq in seqs])

    # ---- observation ----

    @property
    def block_tables(self) -> dict[int, list[PhysicalTokenBlock]]:
        """The table of each sequence: one block per logical block, those of a ring repeated."""
        return {seq_id: self._blocks_of(table) for seq_id, table in self.tables.items()}

    @property
    def cross_block_tables(self) -> dict[str, list[PhysicalTokenBlock]]:
        return {request_id: self._blocks_of(table) for request_id, table in self.cross_tables.items()}

    def _blocks_of(self, table: Table) -> list[PhysicalTokenBlock]:
        allocator = self.cpu_allocator if table.is_on_host else self.gpu_allocator
        return [allocator.block(block_id) for block_id in self._ids_of(table)]

    def _ids_of(self, table: Table) -> list[int]:
        return table.ids if self.block_sliding_window is None else ring_ids(table, self.block_sliding_window)

    def get_block_table(self, seq: SequenceLike) -> list[int]:
        """Block numbers on the device where the sequence is, [] if it has no table. Read only."""
        table = self.tables.get(seq.seq_id)
        return [] if table is None else self._numbers(table)

    def get_cross_block_table(self, seq_group: GroupLike) -> list[int]:
        """Block numbers of the request's cross-attention table, [] if it has none. Read only."""
        table = self.cross_tables.get(seq_group.request_id)
        return [] if table is None else self._numbers(table)

    def _numbers(self, table: Table) -> list[int]:
        ids = self._ids_of(table)
        return [block_id - self.num_total_gpu_blocks for block_id in ids] if table.is_on_host else ids


def _refuse_lookahead(num_lookahead_slots: int) -> None:
    if num_lookahead_slots:
        raise InvalidValueError(
            "num_lookahead_slots", num_lookahead_slots, "the first generation has no lookahead slots"
        )
