"""The block objects of `kvproof.impl.vllm_api` as a subject, driven as vLLM's block manager drives its own.

A sequence has a `BlockTable`, all tables are on one `CpuGpuBlockAllocator`, and two trackers remember what is cached
and when a sequence was used last. Admission adds up required blocks; an append and a swap-in count every block that
they touch as a new one, which is the worst case. A step's blocks are marked computed when the step is launched.

Source: vLLM 0.9, vllm/core/block_manager.py, SelfAttnBlockSpaceManager (order of calls and demands; the code is ours).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.manager import (
    NULL_BLOCK,
    Admission,
    Assumption,
    Config,
    Observation,
    Pair,
    Scheduled,
    Unsupported,
)
from kvproof.check.protocol.manager_adapter import ManagerAdapter
from kvproof.check.subjects.builtin.manager import ANSWERS, ASSUMPTIONS, BuiltIn, extra_of
from kvproof.impl import (
    BlockTable,
    ComputedBlocksTracker,
    CpuGpuBlockAllocator,
    Device,
    LastAccessBlocksTracker,
    Sequence,
)
from kvproof.impl.admission import admission
from kvproof.impl.block_arithmetic import num_window_blocks
from kvproof.spec.text.identity import Image, Key

GPU, CPU = Device.GPU, Device.CPU


class BlockObjects(ManagerAdapter):
    """`kvproof.impl.CpuGpuBlockAllocator` and its block tables behind the protocol; `self.manager` is the allocator."""

    name = "kvproof-objects"
    capabilities = replace(
        BuiltIn.capabilities,
        images=False,
        counts_touched_blocks=True,
        swaps_encoders=False,
        preempts_swapped_encoders=False,
        records_kept=None,  # the pool of block objects grows, and does not shrink
        common_blocks=False,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def make(self, config: Config) -> CpuGpuBlockAllocator:
        """A new allocator, and trackers around it. Raises Unsupported for features that exclude each other."""
        if config.window and config.caching:
            raise Unsupported("a sliding window and the prefix cache exclude each other")
        if config.cross and (config.window or config.caching):
            raise Unsupported("an encoder excludes a sliding window and the prefix cache")
        size = config.block_size
        kind = "prefix_caching" if config.caching else "naive"
        allocator = CpuGpuBlockAllocator.create(kind, config.num_gpu_blocks, config.num_host_blocks, size)
        self.window_blocks = None if config.window is None else num_window_blocks(config.window, size)
        self.cached = ComputedBlocksTracker(allocator, size, config.caching)
        self.accessed = LastAccessBlocksTracker(allocator)
        self.seqs: dict[int, Sequence] = {}
        self.block_tables: dict[int, BlockTable] = {}
        self.encoders: dict[int, tuple[int, list[int]]] = {}  # of a group: sequence and tokens
        self.swapped: set[int] = set()  # groups
        return allocator

    # Sequences ----------------------------------------------------------------------------------------------------

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        super().new(group, seqs, tokens, key, images)
        for seq in seqs:
            self._set_waiting(seq)

    def _set_waiting(self, seq: int) -> None:
        self.seqs[seq] = Sequence(seq, self.tokens[seq], self.config.block_size, extra_of(self.keys[seq]))

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        self.encoders[group] = seq, list(tokens)

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        self.seqs[seq].append_token_id(token)

    # Questions ----------------------------------------------------------------------------------------------------

    def hits(self, group: int) -> int:
        return min(self.cached.get_num_cached_tokens(self.seqs[seq]) for seq in self.groups[group])

    def forget(self, group: int) -> None:
        for seq in self.groups[group]:
            self.cached.remove_seq(seq)

    def can_admit(self, group: int) -> Admission:
        _, encoder_tokens = self.encoders.get(group, (None, None))
        return self.can_allocate(self.tokens[self.groups[group][0]], encoder_tokens)

    def can_allocate(self, tokens: list[int], encoder_tokens: list[int] | None = None) -> Admission:
        """Compare the blocks required with those that are free and those that could ever be."""
        config, allocator = self.config, self.manager
        num_required = BlockTable.get_num_required_blocks(tokens, config.block_size, config.lookahead)
        num_required += BlockTable.get_num_required_blocks(encoder_tokens or [], config.block_size)
        num_usable = config.num_gpu_blocks - allocator.has_null_block
        return ANSWERS[admission(num_required, self.num_free(), num_usable, self._watermark_blocks())]

    def can_append(self, group: int) -> bool:
        """Whether every block that the group touches could be a new one."""
        return self._num_touched(group) <= self.num_free()

    def _num_touched(self, group: int) -> int:
        num_touched = sum(
            self.block_tables[seq].get_num_blocks_touched_by_append_slots(self._unseen(seq), self._lookahead(seq))
            for seq in self.groups[group]
        )
        return num_touched + (self.window_blocks is not None and not self.manager.has_null_block)

    def _unseen(self, seq: int) -> list[int]:
        return list(self.block_tables[seq].get_unseen_token_ids(self.tokens[seq]))

    def _lookahead(self, seq: int) -> int:
        return 0 if self.seqs[seq].is_prefill() else self.config.lookahead

    def can_swap_out(self, group: int) -> Admission:
        return Admission.OK if self._num_moved(group) <= self.num_free_host() else Admission.LATER

    def can_swap_in(self, group: int) -> Admission:
        """Whether the GPU has a block for each block of the group, and those that the next append touches."""
        num_needed = self._num_moved(group) + self._num_touched(group)
        num_usable = self.config.num_gpu_blocks - self.manager.has_null_block
        if num_needed > num_usable:
            return Admission.NEVER
        num_left = self.num_free() - self.manager.num_held_back_blocks(GPU) - num_needed
        is_idle = self.num_free() == num_usable
        return Admission.OK if is_idle or num_left >= self._watermark_blocks() else Admission.LATER

    def _watermark_blocks(self) -> int:
        return int(self.config.watermark * self.config.num_gpu_blocks)

    def _num_moved(self, group: int) -> int:
        return len({block.block_id for block in self._blocks(group)})

    def _blocks(self, group: int) -> list[Any]:
        return [
            block
            for seq in self.groups[group]
            for block in self.block_tables[seq].blocks
            if block.block_id != self._null_id()
        ]

    # Calls --------------------------------------------------------------------------------------------------------

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """A table for the prompt, and one for the encoder; the hit is that of the look-up."""
        group = self._group_of[seq]
        num_hit = self.hits(group)
        if group in self.encoders:
            encoder, encoder_tokens = self.encoders[group]
            self.block_tables[encoder] = BlockTable(self.config.block_size, self.manager)
            self.block_tables[encoder].allocate(encoder_tokens)
        table = self.block_tables[seq] = BlockTable(
            self.config.block_size, self.manager, max_block_sliding_window=self.window_blocks
        )
        table.allocate(tokens, extra_hash=self.seqs[seq].extra_hash())
        self.accessed.add_seq(seq)
        return num_hit

    def append(self, seq: int, num_tokens: int) -> list[Pair]:
        """Slots for the tokens that have none and the lookahead; a further chunk only lets the window move on."""
        one = self.seqs[seq]
        num_computed = one.data.get_num_computed_tokens()
        self.block_tables[seq].append_token_ids(self._unseen(seq), self._lookahead(seq), num_computed, one.extra_hash())
        return list(self.manager.clear_copy_on_writes())

    def share(self, parent: int, child: int) -> None:
        self.seqs[child] = self.seqs[parent].fork(child)
        self.block_tables[child] = self.block_tables[parent].fork()
        self.accessed.add_seq(child)

    def release(self, seq: int) -> None:
        """Free the table, with the last sequence of a group also the encoder's; flush the last access before."""
        group, table = self._group_of[seq], self.block_tables.pop(seq)
        if group not in self.swapped:
            self._flush_access(seq, table)
        table.free()
        self.accessed.remove_seq(seq)
        self.cached.remove_seq(seq)
        if group in self.encoders and self.groups[group] == [seq]:
            self.block_tables.pop(self.encoders[group][0]).free()

    def _flush_access(self, seq: int, table: BlockTable) -> None:
        if self.config.caching:
            self.accessed.update_seq_blocks_last_access(seq, table.physical_block_ids)

    def preempt(self, group: int) -> None:
        """Free every sequence of the group; it waits again with all its tokens as its prompt."""
        super().preempt(group)
        for seq in self.groups[group]:
            self._set_waiting(seq)

    def swap_out(self, group: int) -> list[Pair]:
        for seq in self.groups[group]:
            self._flush_access(seq, self.block_tables[seq])
        self.swapped.add(group)
        return self._swap(group, GPU, CPU)

    def swap_in(self, group: int) -> list[Pair]:
        self.swapped.remove(group)
        return self._swap(group, CPU, GPU)

    def _swap(self, group: int, source: Device, target: Device) -> list[Pair]:
        blocks = [block for seq in self.groups[group] for block in self.block_tables[seq].blocks]  # null blocks too
        moved = self.manager.swap(blocks, source, target)
        for seq in self.groups[group]:
            table = self.block_tables[seq]
            table.update(table.blocks)
        number = self.manager.get_physical_block_id
        return [(number(source, old), number(target, new)) for old, new in moved.items()]

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """Record the accesses, and mark the blocks that this step completes."""
        self.manager.get_and_reset_swaps()
        completed: list[int] = []
        for one in step:
            self.accessed.update_last_access(one.seq, float(now))
            completed += self.block_tables[one.seq].physical_block_ids[: one.stop // self.config.block_size]
        if completed:
            self.manager.mark_blocks_as_computed(completed)

    def step_done(self, step: list[Scheduled]) -> None:
        for one in step:
            data = self.seqs[one.seq].data
            data.update_num_computed_tokens(one.stop - data.get_num_computed_tokens())

    def reset_cache(self) -> bool:
        return bool(self.manager.reset_prefix_cache())

    # Observation --------------------------------------------------------------------------------------------------

    def num_free(self) -> int:
        return int(self.manager.get_num_free_blocks(GPU))

    def num_free_host(self) -> int:
        return int(self.manager.get_num_free_blocks(CPU))

    def tables(self) -> Mapping[int, list[int]]:
        null = self._null_id()
        return {
            seq: [NULL_BLOCK if block == null else block for block in table.physical_block_ids]
            for seq, table in self.block_tables.items()
        }

    def _null_id(self) -> int | None:
        return self.manager.allocate_or_get_null_block().block_id if self.manager.has_null_block else None

    def refcounts(self) -> list[int]:
        refs, null = self.manager.refcounts[:], self._null_id()
        if null is not None:
            refs[null] = 0
        return list(refs)

    def free_ids(self) -> list[int]:
        return list(self.manager.free_ids())

    def observe(self) -> Observation:
        null = self._null_id()
        return super().observe()._replace(reserved=() if null is None else (null,))
