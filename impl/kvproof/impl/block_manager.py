"""The block manager: which block holds which tokens of which sequence.

A scheduler asks (`can_...`), then calls. An OK promises that the call succeeds if nothing else happens in between;
`can_swap_in` also promises the append of the waiting tokens and the lookahead. A call that raises has changed nothing.

Each sequence has one `Table` of plain ids. `DeviceBlocks` owns refcounts and free ids, and `CachedBlocks` adds the
prefix cache. `admission`, `growth` and `swapping` explain how tables are made, grow and move, and why the transfers of
one step do not disturb each other. `manager_state` has the fields, the numbering of ids and the view for observers.

A caller must not swap in after a preemption or a swap-out of the same step, must append or preempt the running
sequences of a group together, and must free and fork between steps. The worker executes the swap-ins of a step, then
its swap-outs, then its copies, then the model.

For a sequence without a table, `free`, `free_cross`, `fork`, marking, recording an access and looking up do nothing or
return nothing; append and swap raise UnknownSequenceError.

Source: vLLM 0.9, vllm/core/block_manager.py, SelfAttnBlockSpaceManager; `kvproof.impl` lists what differs.
"""

from collections.abc import Mapping, Sequence

from .admission import AllocStatus, admission, admission_from_host, new_table
from .block_arithmetic import num_blocks_for
from .errors import (
    NO_ENCODER_WITH_PREFIX_CACHE,
    NO_ENCODER_WITH_WINDOW,
    DuplicateSequenceError,
    InvalidValueError,
    UnknownSequenceError,
    UnsupportedError,
    WrongDeviceError,
    require_at_least,
)
from .growth import Pairs
from .manager_state import ManagerState
from .sequence import GroupLike, SequenceLike, SequenceStatus
from .swapping import distinct_ids, move
from .table import Table


class SelfAttnBlockSpaceManager(ManagerState):
    """Paged KV-cache block manager for one model on one GPU with host memory to swap to."""

    @property
    def block_tables(self) -> Mapping[int, object]:
        """The tables, under the name that they have in V0; read only."""
        return self.tables

    @property
    def cross_block_tables(self) -> Mapping[str, object]:
        """The cross-attention tables, under the name that they have in V0; read only."""
        return self.cross_tables

    # ---- admission ----

    def can_allocate(self, seq_group: GroupLike, num_lookahead_slots: int = 0) -> AllocStatus:
        """Whether the waiting sequences of the group can be given blocks for their prompt."""
        require_at_least("num_lookahead_slots", num_lookahead_slots, 0)
        num_tokens = len(self._waiting(seq_group)[0].get_token_ids())
        num_required = self._num_prompt_blocks(seq_group, num_tokens + num_lookahead_slots)
        encoder_seq = self._encoder_seq_without_table(seq_group)
        if encoder_seq is not None:
            num_required += num_blocks_for(len(encoder_seq.get_token_ids()), self.block_size)
        return admission(num_required, self._gpu.num_free, self._gpu.num_usable, self.watermark_blocks)

    def allocate(self, seq_group: GroupLike) -> None:
        """Give the waiting sequences of the group one set of blocks for their common prompt.

        Raises NoFreeBlocksError, DuplicateSequenceError if one has a table already, and InvalidValueError if their
        prompts differ or none waits.
        """
        waiting, encoder_seq = self._waiting(seq_group), self._encoder_seq_without_table(seq_group)
        first = waiting[0]
        tokens, extra = first.get_token_ids(), first.extra_hash()
        for seq in waiting:
            if seq.seq_id in self.tables:
                raise DuplicateSequenceError(seq.seq_id)
            if seq is not first and (seq.get_token_ids() != tokens or seq.extra_hash() != extra):
                raise InvalidValueError(
                    "prompt of sequence", seq.seq_id, "the waiting sequences of a group must have the same prompt"
                )
        cross_table = None
        if encoder_seq is not None:
            num_tokens = len(encoder_seq.get_token_ids())
            cross_table = Table(self._gpu.take(num_blocks_for(num_tokens, self.block_size)), num_tokens)
        try:
            table = self._new_table(seq_group, first)
        except Exception:
            if cross_table is not None:
                self._gpu.release(cross_table.ids)
            raise
        if cross_table is not None:
            self.free_cross(seq_group)  # a group that is admitted again may have left one on the host
            self.cross_tables[seq_group.request_id] = cross_table
        self._growth.settle(table, len(table.ids) * self.block_size)
        self._keep(first.seq_id, table)
        for seq in waiting[1:]:
            self._fork_table(table, seq.seq_id)

    def _num_prompt_blocks(self, seq_group: GroupLike, num_slots: int) -> int:
        """Blocks that `_new_table` takes for a prompt and its lookahead."""
        return num_blocks_for(num_slots, self.block_size)

    def _new_table(self, seq_group: GroupLike, seq: SequenceLike) -> Table:
        """Return the table of a prompt. Raises NoFreeBlocksError; then nothing has changed."""
        return new_table(self._gpu, seq, self.block_size)

    def _waiting(self, seq_group: GroupLike) -> Sequence[SequenceLike]:
        waiting = seq_group.get_seqs(SequenceStatus.WAITING)
        if not waiting:
            raise InvalidValueError("waiting sequences", 0, f"group {seq_group.request_id} needs one to be admitted")
        return waiting

    def _encoder_seq_without_table(self, seq_group: GroupLike) -> SequenceLike | None:
        """The encoder's sequence, unless it still has its table from before a preemption."""
        if not seq_group.is_encoder_decoder():
            return None
        if self.sliding_window is not None:
            raise UnsupportedError(NO_ENCODER_WITH_WINDOW)
        if self.enable_caching:
            raise UnsupportedError(NO_ENCODER_WITH_PREFIX_CACHE)
        encoder_seq, table = seq_group.get_encoder_seq(), self.cross_tables.get(seq_group.request_id)
        if encoder_seq is None or table is None or table.is_on_host:
            return encoder_seq
        num_tokens = len(encoder_seq.get_token_ids())
        if num_tokens != table.num_tokens:
            raise InvalidValueError(
                "encoder tokens", num_tokens, f"request {seq_group.request_id} has a table for {table.num_tokens}"
            )
        return None

    # ---- growth ----

    def can_append_slots(self, seq_group: GroupLike, num_lookahead_slots: int) -> bool:
        """Whether each running sequence of the group can append its new tokens and the lookahead."""
        require_at_least("num_lookahead_slots", num_lookahead_slots, 0)
        members = []
        for seq in seq_group.get_seqs(SequenceStatus.RUNNING):
            table = self.tables.get(seq.seq_id)
            if table is not None and self.sliding_window is None:
                known = len(seq.get_token_ids())
                if (
                    table.num_tokens <= known <= table.quiet_tokens
                    and known + num_lookahead_slots <= table.writable_slots
                ):
                    continue  # the usual case
            table = self._table(seq, is_on_host=False)
            if not self._is_quiet(table, seq, num_lookahead_slots):
                members.append((table, seq))
        return not members or self._growth.num_needed(members, num_lookahead_slots) <= self._gpu.num_free

    def append_slots(self, seq: SequenceLike, num_lookahead_slots: int) -> Pairs:
        """Give slots to the new tokens and the lookahead; returns the (source, target) copies to make first.

        Raises NoFreeBlocksError, UnknownSequenceError and WrongDeviceError.
        """
        table = self.tables.get(seq.seq_id)
        if table is not None and self.sliding_window is None:
            known = len(seq.get_token_ids())
            if table.num_tokens <= known <= table.quiet_tokens and num_lookahead_slots >= 0:
                end = known + num_lookahead_slots
                if end <= table.writable_slots:  # the usual case
                    table.num_tokens = known
                    return []
                if not table.is_on_host:
                    pairs = self._growth.append_within_block(table, known, end)
                    if pairs is not None:
                        return pairs
            elif num_lookahead_slots == 0:
                filled = self._growth.append_filling(table, seq.get_token_ids())
                if filled is not None:
                    self._num_unmarked += 1
                    return filled
        require_at_least("num_lookahead_slots", num_lookahead_slots, 0)
        table = self._table(seq, is_on_host=False)
        if self._is_quiet(table, seq, num_lookahead_slots):
            table.num_tokens = len(seq.get_token_ids())
            return []
        num_full = len(table.contents)
        pairs = self._growth.append(table, seq, num_lookahead_slots)
        self._num_unmarked += len(table.contents) - num_full
        return pairs

    def _is_quiet(self, table: Table, seq: SequenceLike, num_lookahead_slots: int) -> bool:
        known = len(seq.get_token_ids())
        if known < table.num_tokens:
            raise InvalidValueError(
                "number of tokens", known, f"sequence {seq.seq_id} has slots for {table.num_tokens} already"
            )
        return (
            known <= table.quiet_tokens
            and known + num_lookahead_slots <= table.writable_slots
            and (self.sliding_window is None or self._growth.first_kept(table, seq) == table.num_dropped)
        )

    def _table(self, seq: SequenceLike, is_on_host: bool) -> Table:
        table = self.tables.get(seq.seq_id)
        if table is None:
            raise UnknownSequenceError(seq.seq_id)
        if table.is_on_host != is_on_host:
            raise WrongDeviceError(seq.seq_id, "CPU" if is_on_host else "GPU")
        return table

    # ---- sharing and leaving ----

    def fork(self, parent_seq: SequenceLike, child_seq: SequenceLike) -> None:
        """Let the child share every block of the parent; the first that writes a shared block gets a copy of it.

        Raises DuplicateSequenceError if the child has a table already.
        """
        if child_seq.seq_id in self.tables:
            raise DuplicateSequenceError(child_seq.seq_id)
        table = self.tables.get(parent_seq.seq_id)
        if table is not None:
            self._landed.clear()
            self._fork_table(table, child_seq.seq_id)

    def _fork_table(self, table: Table, child_id: int) -> None:
        blocks = self._host if table.is_on_host else self._gpu
        blocks.share(table.held_ids())
        if self._cache is not None:
            self._cache.contents.need(table.last_content())
        self._keep(child_id, table.fork())

    def _keep(self, seq_id: int, table: Table) -> None:
        self.tables[seq_id], self._ids[seq_id] = table, table.ids
        self._num_unmarked += table.num_unmarked

    def free(self, seq: SequenceLike) -> None:
        """Release the table of a sequence. The blocks that it has computed stay in the prefix cache."""
        table = self.tables.pop(seq.seq_id, None)
        if table is None:
            return
        del self._ids[seq.seq_id]
        self._landed.clear()
        if self._cache is not None and not table.is_on_host:
            self._mark(self._cache, table, seq.data.get_num_computed_tokens())
            self._cache.record_access(table.ids, table.last_accessed)
        self._give_up(table)

    def _give_up(self, table: Table) -> None:
        self._num_unmarked -= table.num_unmarked
        (self._host if table.is_on_host else self._gpu).release(table.held_ids())
        if self._cache is not None:
            self._cache.contents.release(table.last_content())

    def free_cross(self, seq_group: GroupLike) -> None:
        """Release the cross-attention table of a request."""
        table = self.cross_tables.pop(seq_group.request_id, None)
        if table is not None:
            (self._host if table.is_on_host else self._gpu).release(table.ids)

    # ---- swapping ----

    def can_swap_in(self, seq_group: GroupLike, num_lookahead_slots: int) -> AllocStatus:
        """Whether the group can come back and append its waiting tokens and the lookahead at once."""
        require_at_least("num_lookahead_slots", num_lookahead_slots, 0)
        members = [(self._table(seq, is_on_host=True), seq) for seq in seq_group.get_seqs(SequenceStatus.SWAPPED)]
        tables = self._with_cross(seq_group, [table for table, _ in members])
        num_needed = len(distinct_ids(tables)) + self._growth.num_needed(members, num_lookahead_slots)
        num_free = self._gpu.num_free - self.num_held_back_blocks()
        return admission_from_host(num_needed, num_free, self._gpu.num_usable, self.watermark_blocks, self._is_idle())

    def _is_idle(self) -> bool:
        """Whether no table is on the GPU."""
        return self._gpu.is_idle

    def swap_in(self, seq_group: GroupLike) -> Pairs:
        """Move the swapped sequences to the GPU; returns (host, GPU) pairs, numbered per device.

        Raises NoFreeBlocksError, UnknownSequenceError and WrongDeviceError.
        """
        seqs = seq_group.get_seqs(SequenceStatus.SWAPPED)
        tables = self._with_cross(seq_group, [self._table(seq, is_on_host=True) for seq in seqs])
        mapping = move(tables, self._host, self._gpu, self._landed)
        self._moved(seqs, tables, is_on_host=False)
        self._landed.update(mapping.values())
        base = self.num_total_gpu_blocks
        return [(source - base, target) for source, target in mapping.items()]

    def can_swap_out(self, seq_group: GroupLike) -> bool:
        """Whether the host has room for the group's running sequences."""
        tables = self._with_cross(
            seq_group, [self._table(seq, is_on_host=False) for seq in seq_group.get_seqs(SequenceStatus.RUNNING)]
        )
        return len(distinct_ids(tables)) <= self._host.num_free

    def swap_out(self, seq_group: GroupLike) -> Pairs:
        """Move the running sequences to the host; returns (GPU, host) pairs, numbered per device.

        Raises NoFreeBlocksError, UnknownSequenceError and WrongDeviceError.
        """
        seqs = seq_group.get_seqs(SequenceStatus.RUNNING)
        tables = self._with_cross(seq_group, [self._table(seq, is_on_host=False) for seq in seqs])
        mapping = move(tables, self._gpu, self._host, set())
        self._moved(seqs, tables, is_on_host=True)
        self._landed.clear()
        base = self.num_total_gpu_blocks
        return [(source, target - base) for source, target in mapping.items()]

    def _moved(self, seqs: Sequence[SequenceLike], tables: list[Table], is_on_host: bool) -> None:
        for table in tables:
            table.is_on_host = is_on_host
        for seq in seqs:
            self._ids[seq.seq_id] = self.tables[seq.seq_id].ids

    def _with_cross(self, seq_group: GroupLike, tables: list[Table]) -> list[Table]:
        """Add the cross-attention table of the group, which moves with it."""
        cross_table = self.cross_tables.get(seq_group.request_id) if tables else None
        if cross_table is not None and cross_table.is_on_host == tables[0].is_on_host:
            tables.append(cross_table)
        return tables


BlockManager = SelfAttnBlockSpaceManager
