"""Record a manager with vLLM's V0 interface: `kvproof.impl`'s own, and vLLM's second generation.

The questions and calls of a scheduler are recorded, including `mark_blocks_as_computed`, which reports what a step
computes. Calls that only return the state of the manager (`get_block_table`, the free counts) leave no line. The times
at which blocks were used are not recorded.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvproof.check.protocol.manager import NULL_BLOCK, Config
from kvproof.check.recording.format import (
    POSITIVE,
    SCHEMA_VERSION,
    VLLM_V0,
    Header,
    RecordedCall,
    RecordedSequence,
    Table,
)
from kvproof.check.recording.recorder import Recorder, num_kept
from kvproof.check.recording.recording_file import RecordingRefused

WAITING, RUNNING, SWAPPED = "WAITING", "RUNNING", "SWAPPED"
NEEDED = ("allocate", "append_slots", "free", "block_tables", "get_block_table", "num_total_gpu_blocks")


class Written:
    """What has been written about a live sequence: the number of tokens, its table, the digest of its last token."""

    __slots__ = ("last", "num_tokens", "table")

    def __init__(self) -> None:
        self.num_tokens = 0
        self.table: list[int] = []
        self.last = b""


class V0Recorder(Recorder):
    """Records `SelfAttnBlockSpaceManager`, or a manager with the same interface."""

    hands_over = False

    calls = (
        "can_allocate",
        "allocate",
        "can_append_slots",
        "append_slots",
        "fork",
        "free",
        "can_swap_out",
        "swap_out",
        "can_swap_in",
        "swap_in",
        "mark_blocks_as_computed",
        "get_num_cached_tokens",
        "get_common_computed_block_ids",
        "reset_prefix_cache",
    )

    def header(self) -> Header:
        """The configuration, under the names that both managers use. Raises RecordingRefused for another class."""
        manager = self.manager
        if missing := [name for name in NEEDED if not hasattr(manager, name)]:
            raise RecordingRefused(
                f"{type(manager).__name__} does not have vLLM's V0 interface: it has no {missing[0]}"
            )
        self.known: dict[int, Written] = {}
        self.num_gpu, self.num_host = manager.num_total_gpu_blocks, manager.num_total_cpu_blocks
        self.has_window = manager.max_block_sliding_window is not None
        reserved, free = self.reserved(), self.free()
        in_use = self.num_gpu + self.num_host - sum(free) - len(reserved)
        return Header(
            kvproof_recording=SCHEMA_VERSION,
            interface=VLLM_V0,
            manager=f"{type(manager).__module__}.{type(manager).__name__}",
            block_size=manager.block_size,
            num_gpu_blocks=self.num_gpu,
            num_host_blocks=self.num_host,
            watermark=manager.watermark,
            window=manager.sliding_window,
            caching=bool(manager.enable_caching),
            free=free,
            reserved=reserved,
            is_fresh=not manager.block_tables and not in_use and not self._num_cached(),
        )

    def _num_cached(self) -> int:
        if not self.manager.enable_caching:
            return 0
        if hasattr(self.manager, "evictable_ids"):
            from kvproof.impl import Device

            return len(self.manager.evictable_ids(Device.GPU))
        return sum(len(part._cached_blocks) for part in self.manager.block_allocator._allocators.values())

    def free(self) -> tuple[int, int]:
        return self.manager.get_num_free_gpu_blocks(), self.manager.get_num_free_cpu_blocks()

    def reserved(self) -> list[int]:
        """The null block, once it exists."""
        if not self.has_window:
            return []
        if hasattr(self.manager, "null_block_id"):
            null = self.manager.null_block_id
        else:
            block = self.manager.block_allocator._null_block
            null = None if block is None else block.block_id
        return [] if null is None else [null]

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """Refcounts and free ids, from kvproof's own manager or from the allocators of vLLM's."""
        manager = self.manager
        if hasattr(manager, "refcounts"):
            from kvproof.impl import Device

            free_ids = manager.free_ids(Device.GPU) + manager.evictable_ids(Device.GPU) + manager.free_ids(Device.CPU)
            refs = list(manager.refcounts)
        else:
            from kvproof.check.subjects.vllm.v0_observation import Pools

            pools = Pools(manager, Config(num_gpu_blocks=self.num_gpu, num_host_blocks=self.num_host))
            refs, free_ids = pools.refs(), pools.free_ids(manager.enable_caching)
        for null in self.reserved():
            refs[null] = 0
        return refs, free_ids

    def line_sink(self) -> Callable[[Any], object]:
        """Each line has the ids that are reserved after it."""
        put = self._sink.put

        def put_with_reserved(line: RecordedCall) -> None:
            line.reserved = self.reserved()
            put(line)

        return put_with_reserved

    # Sequences and groups -------------------------------------------------------------------------------------------

    def _sequence(self, seq: Any, with_tokens: bool = False, with_table: bool = True) -> RecordedSequence:
        recorded = RecordedSequence(seq.seq_id)
        recorded.num_computed, recorded.is_prefill = seq.data.get_num_computed_tokens(), bool(seq.is_prefill())
        if with_tokens:
            self._add_tokens(recorded, seq)
        if with_table:
            self._add_table(recorded, seq)
        return recorded

    def _add_tokens(self, recorded: RecordedSequence, seq: Any) -> None:
        tokens = seq.get_token_ids()
        recorded.extra = self.digest(seq.extra_hash())
        block_extra = getattr(seq, "block_extra", None)
        if block_extra is None:
            self._new_tokens(recorded, len(tokens), lambda start: tokens[start:])
        else:
            self._new_tokens(recorded, len(tokens), lambda start: self._with_extras(tokens, start, block_extra))

    def _with_extras(self, tokens: Sequence[int], start: int, block_extra: Any) -> Iterable[int]:
        """The tokens from `start` on; in a block that depends on more than tokens, such as an image, their digests."""
        size = self.manager.block_size
        for position in range(start, len(tokens)):
            extra = block_extra(position // size)
            token = tokens[position]
            yield token if extra is None else int(self.digest((token, extra)), 16) >> 1

    def _new_tokens(
        self, recorded: RecordedSequence, num_tokens: int, tokens_from: Callable[[int], Iterable[int]]
    ) -> None:
        """Add the tokens that no earlier line contains. tokens_from: returns the tokens from a position on."""
        known = self.known.setdefault(recorded.seq, Written())
        if num_tokens < known.num_tokens:  # tokens were removed, so all are written again
            known.num_tokens, known.last = 0, b""
        recorded.start = known.num_tokens
        if num_tokens > known.num_tokens:
            recorded.tokens = self._numbers(known, tokens_from(known.num_tokens))
            known.num_tokens = recorded.start + len(recorded.tokens)

    def _numbers(self, known: Written, tokens: Iterable[int]) -> list[int]:
        if not self.has_digests:
            return list(tokens)
        numbers, digest = [], self._digests.of
        for token in tokens:
            known.last = digest(known.last + b"%d" % token)
            numbers.append(int.from_bytes(known.last, "big") & POSITIVE)
        return numbers

    def _add_table(self, recorded: RecordedSequence, seq: Any) -> None:
        """Add the changes of the table since the last line about the sequence."""
        known = self.known.setdefault(recorded.seq, Written())
        if seq.seq_id not in self.manager.block_tables:
            known.table, recorded.tables = [], []
            return
        table = list(self.manager.get_block_table(seq))
        for null in self.reserved():
            table = [NULL_BLOCK if block == null else block for block in table]
        kept = num_kept(known.table, table)
        rest = table[kept:]
        recorded.tables = [Table(kept, rest)]
        known.table = table

    def _members(self, group: Any, status: str) -> list[Any]:
        return [seq for seq in group.get_seqs() if seq.status.name == status]

    def _line(self, group: Any = None, answer: Any = None) -> RecordedCall:
        line = RecordedCall(0, "", answer=answer)
        if group is not None:
            line.group = str(group.request_id)
            if group.is_encoder_decoder():
                line.unjudged = ["encoder"]
        return line

    # Calls ----------------------------------------------------------------------------------------------------------

    def on_can_allocate(self, answer: Any, seq_group: Any, num_lookahead_slots: int = 0) -> RecordedCall:
        """The line of a question; of the prompt it contains only the length."""
        waiting = self._members(seq_group, WAITING)
        line = self._line(seq_group, _name(answer))
        line.num_tokens, line.num_seqs = len(waiting[0].get_token_ids()) if waiting else 0, len(waiting)
        line.lookahead = num_lookahead_slots
        return line

    def on_allocate(self, answer: Any, seq_group: Any) -> RecordedCall:
        """The line of an admission, with tokens and tables of the waiting sequences."""
        line = self._line(seq_group)
        for seq in self._members(seq_group, WAITING):
            self.known.pop(seq.seq_id, None)
            line.seqs.append(self._sequence(seq, with_tokens=True))
        return line

    def on_can_append_slots(self, answer: Any, seq_group: Any, num_lookahead_slots: int) -> RecordedCall:
        line = self._line(seq_group, _name(answer))
        line.lookahead = num_lookahead_slots
        return line

    def on_append_slots(self, answer: Any, seq: Any, num_lookahead_slots: int) -> RecordedCall:
        """The line of a growth, with the new tokens, the table and the copies."""
        line = RecordedCall(0, "", seqs=[self._sequence(seq, with_tokens=True)], answer=_pairs(answer))
        line.lookahead = num_lookahead_slots
        return line

    def on_fork(self, answer: Any, parent_seq: Any, child_seq: Any) -> RecordedCall:
        self.known.pop(child_seq.seq_id, None)
        return RecordedCall(0, "", seqs=[self._sequence(parent_seq), self._sequence(child_seq, with_tokens=True)])

    def on_free(self, answer: Any, seq: Any) -> RecordedCall:
        """The line of a release, with the status of the sequence."""
        recorded = self._sequence(seq)
        self.known.pop(seq.seq_id, None)
        return RecordedCall(0, "", seqs=[recorded], status=seq.status.name)

    def on_can_swap_out(self, answer: Any, seq_group: Any) -> RecordedCall:
        return self._line(seq_group, _name(answer))

    def on_swap_out(self, answer: Any, seq_group: Any) -> RecordedCall:
        """The line of a swap out, with the tables of the running sequences on the host."""
        line = self._line(seq_group, _pairs(answer))
        line.seqs = [self._sequence(seq) for seq in self._members(seq_group, RUNNING)]
        return line

    def on_can_swap_in(self, answer: Any, seq_group: Any, num_lookahead_slots: int = 0) -> RecordedCall:
        line = self._line(seq_group, _name(answer))
        line.lookahead = num_lookahead_slots
        return line

    def on_swap_in(self, answer: Any, seq_group: Any) -> RecordedCall:
        """The line of a swap in, with the tables of the swapped sequences on the GPU."""
        line = self._line(seq_group, _pairs(answer))
        line.seqs = [self._sequence(seq) for seq in self._members(seq_group, SWAPPED)]
        return line

    def on_mark_blocks_as_computed(self, answer: Any, seq_group: Any, token_chunk_size: int = 0) -> RecordedCall:
        """The line that reports what the step computes of each running sequence."""
        line = self._line(seq_group)
        line.seqs = [self._sequence(seq, with_table=False) for seq in self._members(seq_group, RUNNING)]
        line.num_tokens = token_chunk_size
        return line

    def on_get_num_cached_tokens(self, answer: Any, seq: Any) -> RecordedCall:
        return RecordedCall(0, "", seqs=[RecordedSequence(seq.seq_id)], answer=None if answer is None else int(answer))

    def on_get_common_computed_block_ids(self, answer: Any, seqs: Sequence[Any]) -> RecordedCall:
        """The line of a look-up of the blocks that the step need not compute."""
        recorded = [RecordedSequence(seq.seq_id) for seq in seqs]
        return RecordedCall(0, "", seqs=recorded, answer=None if answer is None else len(answer))

    def on_reset_prefix_cache(self, answer: Any, device: Any = None) -> RecordedCall:
        return RecordedCall(0, "", answer=None if answer is None else bool(answer))


def _name(answer: Any) -> bool | str | None:
    """The answer to a question: a bool, or the name of an admission."""
    return answer if answer is None or isinstance(answer, bool) else str(answer.name)


def _pairs(answer: Any) -> list[tuple[int, int]] | None:
    return None if answer is None else [(int(source), int(target)) for source, target in answer]
