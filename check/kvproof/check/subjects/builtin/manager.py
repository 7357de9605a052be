"""The built-in block manager as a subject."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from kvproof.check.protocol.manager import (
    NULL_BLOCK,
    Admission,
    Admitted,
    Assumption,
    Capabilities,
    Config,
    Observation,
    Pair,
    Refused,
    Reserved,
    Scheduled,
    Unsupported,
)
from kvproof.impl import AllocStatus, BlockManager, Device, SequenceStatus
from kvproof.spec.text.identity import Image, Key

ANSWERS = {
    AllocStatus.OK: Admission.OK,
    AllocStatus.LATER: Admission.LATER,
    AllocStatus.NEVER: Admission.NEVER,
}
ASSUMPTIONS = (
    Assumption("asks-first", "The caller asks can_allocate, can_append_slots or can_swap before the call."),
    Assumption("no-swap-in-after", "Nothing is swapped in after a preemption or swap-out of the same step."),
    Assumption("groups-move-together", "The running sequences of a group append, or are preempted, together."),
    Assumption("free-between-steps", "Sequences are freed and forked between steps."),
)


class ToldSequence:
    """What the manager reads of a sequence."""

    def __init__(self, seq_id: int, tokens: list[int], key: Key, images: tuple[Image, ...], block_size: int) -> None:
        self.seq_id, self.tokens, self.key, self.images = seq_id, tokens, key, images
        self.block_size = block_size
        self.status: SequenceStatus = SequenceStatus.WAITING
        self.num_computed = 0
        self.num_prompt = len(tokens)
        self.extra = (key.adapter_id, key.salt) if key.adapter_id or key.salt else None

    @property
    def data(self) -> ToldSequence:
        """The manager asks the sequence's data how far it is computed."""
        return self

    def get_num_computed_tokens(self) -> int:
        """Tokens computed by steps that are over."""
        return self.num_computed

    def get_token_ids(self) -> list[int]:
        """All tokens; read only."""
        return self.tokens

    def extra_hash(self) -> Hashable:
        """Adapter and salt."""
        return self.extra

    def block_extra(self, index: int) -> Hashable:
        """The images that lie in a block, and where."""
        if not self.images:
            return None
        first, last = index * self.block_size, (index + 1) * self.block_size
        rows = [(i.name, i.start - first) for i in self.images if i.start < last and first < i.start + i.length]
        return tuple(rows) or None

    def is_prefill(self) -> bool:
        """Whether the prompt is not computed yet."""
        return self.num_computed < self.num_prompt


class ToldGroup:
    """What the manager reads of a group."""

    def __init__(self, request_id: str, members: list[ToldSequence]) -> None:
        self.request_id, self.members = request_id, members
        self.encoder: ToldSequence | None = None

    def get_seqs(self, status: SequenceStatus | None = None) -> list[ToldSequence]:
        """The members with a status, or all."""
        return self.members if status is None else [seq for seq in self.members if seq.status == status]

    def is_encoder_decoder(self) -> bool:
        """Whether the group has an encoder sequence."""
        return self.encoder is not None

    def get_encoder_seq(self) -> ToldSequence | None:
        """The encoder sequence."""
        return self.encoder


class BuiltIn:
    """`kvproof.impl.BlockManager`, or a manager with the same interface, behind the protocol."""

    name = "kvproof"
    capabilities = Capabilities(
        swap=True,
        fork=True,
        window=True,
        caching=True,
        lookahead=True,
        chunked=True,
        adapters=True,
        salts=True,
        images=True,
        cross=True,
        reset=True,
        waiting_groups=True,
        watermark=True,
        evicts_lru=True,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, make: Callable[..., Any] = BlockManager) -> None:
        self.make = make

    def open(self, config: Config) -> None:
        """A new manager."""
        if config.window and config.caching:
            raise Unsupported("a sliding window goes not with prefix caching")
        self.config = config
        self.manager = self.make(
            block_size=config.block_size,
            num_gpu_blocks=config.num_gpu_blocks,
            num_cpu_blocks=config.num_host_blocks,
            watermark=config.watermark,
            sliding_window=config.window,
            enable_caching=config.caching,
        )
        self.seqs: dict[int, ToldSequence] = {}
        self.groups: dict[int, ToldGroup] = {}
        self.group_of: dict[int, int] = {}

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        """A waiting group."""
        members = [ToldSequence(s, tokens[:], key, images, self.config.block_size) for s in seqs]
        self.groups[group] = ToldGroup(str(group), members)
        for seq in members:
            self.seqs[seq.seq_id] = seq
            self.group_of[seq.seq_id] = group

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        """Its encoder."""
        self.groups[group].encoder = ToldSequence(seq, tokens, Key(), (), self.config.block_size)

    def grow(self, seq: int, token: int) -> None:
        """A sampled token."""
        self.seqs[seq].tokens.append(token)

    def hits(self, group: int) -> int:
        """A look-up."""
        return int(self.manager.get_num_cached_tokens(self.groups[group].members[0]))

    def forget(self, group: int) -> None:
        """Not admitted."""
        for seq in self.groups[group].members:
            self.manager.remove_seq_from_computed_blocks_tracker(seq)

    def can_admit(self, group: int) -> Admission:
        """can_allocate."""
        return ANSWERS[self.manager.can_allocate(self.groups[group], self.config.lookahead)]

    def can_append(self, group: int) -> bool:
        """can_append_slots."""
        return bool(self.manager.can_append_slots(self.groups[group], self.config.lookahead))

    def can_swap_out(self, group: int) -> Admission:
        """can_swap_out."""
        return Admission.OK if self.manager.can_swap_out(self.groups[group]) else Admission.LATER

    def can_swap_in(self, group: int) -> Admission:
        """can_swap_in."""
        return ANSWERS[self.manager.can_swap_in(self.groups[group], self.config.lookahead)]

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """allocate; the hit is the common computed prefix, as a scheduler asks for it."""
        told = self.groups[group]
        self.manager.allocate(told)
        for seq in told.members:
            seq.status = SequenceStatus.RUNNING
        if not self.config.caching:
            return Admitted()
        return Admitted(len(self.manager.get_common_computed_block_ids(told.members)) * self.config.block_size)

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        """append_slots; the next chunk of a prompt has its slots since it was admitted, but the window may slide."""
        return Reserved(self.manager.append_slots(self.seqs[seq], self.config.lookahead))

    def fork(self, parent: int, child: int) -> None:
        """fork."""
        old = self.seqs[parent]
        new = ToldSequence(child, old.tokens[:], old.key, old.images, old.block_size)
        new.status, new.num_computed, new.num_prompt = old.status, old.num_computed, old.num_prompt
        self.manager.fork(old, new)
        self.seqs[child], self.group_of[child] = new, self.group_of[parent]
        self.groups[self.group_of[parent]].members.append(new)

    def free(self, seq: int) -> None:
        """free, and free_cross with the last sequence of a group."""
        told, gid = self.seqs.pop(seq), self.group_of.pop(seq)
        group = self.groups[gid]
        group.members.remove(told)
        self.manager.free(told)
        if not group.members:
            if group.encoder is not None:
                self.manager.free_cross(group)
            del self.groups[gid]

    def preempt(self, group: int) -> None:
        """Free every sequence; the group waits again."""
        told = self.groups[group]
        for seq in told.members:
            self.manager.free(seq)
            seq.status, seq.num_computed, seq.num_prompt = SequenceStatus.WAITING, 0, len(seq.tokens)
        if told.encoder is not None:
            self.manager.free_cross(told)

    def swap_out(self, group: int) -> list[Pair]:
        """swap_out."""
        pairs = self.manager.swap_out(self.groups[group])
        for seq in self.groups[group].members:
            seq.status = SequenceStatus.SWAPPED
        return list(pairs)

    def swap_in(self, group: int) -> list[Pair]:
        """swap_in."""
        pairs = self.manager.swap_in(self.groups[group])
        for seq in self.groups[group].members:
            seq.status = SequenceStatus.RUNNING
        return list(pairs)

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """Accesses, and what the step is going to compute."""
        marked = set()
        for scheduled in step:
            self.manager.access_all_blocks_in_seq(self.seqs[scheduled.seq], float(now))
            group = self.group_of[scheduled.seq]
            if group not in marked:
                marked.add(group)
                chunk = scheduled.stop - self.seqs[scheduled.seq].num_computed  # what was hit counts as computed
                self.manager.mark_blocks_as_computed(self.groups[group], chunk)

    def step_done(self, step: list[Scheduled]) -> None:
        """What was computed."""
        for scheduled in step:
            self.seqs[scheduled.seq].num_computed = scheduled.stop

    def reset_cache(self) -> bool:
        """reset_prefix_cache."""
        return bool(self.manager.reset_prefix_cache())

    def observe(self) -> Observation:
        """Tables, refcounts and free lists."""
        manager = self.manager
        null = manager.null_block_id
        reserved: tuple[int, ...] = ()
        if null is None:
            tables = {seq: [table.ids[:]] for seq, table in manager.tables.items()}
            refs = manager.refcounts[:]
        else:
            tables = {
                seq: [[NULL_BLOCK if b == null else b for b in table.ids]] for seq, table in manager.tables.items()
            }
            refs, reserved = manager.refcounts[:], (null,)
            refs[null] = 0
        for gid, group in self.groups.items():
            if group.encoder is not None and (cross := manager.cross_tables.get(str(gid))) is not None:
                tables[group.encoder.seq_id] = [cross.ids[:]]
        free_ids = manager.free_ids(Device.GPU) + manager.evictable_ids(Device.GPU) + manager.free_ids(Device.CPU)
        free = (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks())
        return Observation(tables, free, reserved, refs, free_ids)


def make() -> BuiltIn:
    """The built-in manager, ready to be opened."""
    return BuiltIn()
