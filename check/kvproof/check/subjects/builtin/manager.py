"""The built-in block manager as a subject."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import (
    NULL_BLOCK,
    Admission,
    Admitted,
    Assumption,
    Config,
    Observation,
    Pair,
    Refused,
    Reserved,
    Scheduled,
)
from kvproof.check.protocol.manager_adapter import ManagerAdapter
from kvproof.impl import AllocStatus, BlockManager, Device, Prefix, SequenceStatus
from kvproof.impl.errors import DoubleFreeError
from kvproof.spec.text.eviction_policy import BLOCK_LRU
from kvproof.spec.text.identity import Image, Key

ANSWERS = {
    AllocStatus.OK: Admission.OK,
    AllocStatus.LATER: Admission.LATER,
    AllocStatus.NEVER: Admission.NEVER,
}
GPU, CPU = Device.GPU, Device.CPU
Tables = dict[int, list[list[int]]]  # copies, by sequence; there is one KV group
ASSUMPTIONS = (
    Assumption("asks-first", "The caller asks can_allocate, can_append_slots or can_swap before the call."),
    Assumption("no-swap-in-after", "Nothing is swapped in after a preemption or swap-out of the same step."),
    Assumption("groups-move-together", "The running sequences of a group append, or are preempted, together."),
    Assumption("free-between-steps", "Sequences are freed and forked between steps."),
)


class FakeSequence:
    """What the manager reads of a sequence. tokens: all tokens, in a list that the adapter extends."""

    def __init__(self, seq_id: int, tokens: list[int], key: Key, images: tuple[Image, ...], block_size: int) -> None:
        self.seq_id, self.tokens, self.key, self.images = seq_id, tokens, key, images
        self.block_size = block_size
        self.status: SequenceStatus = SequenceStatus.WAITING
        self.num_computed = 0
        self.num_prompt = len(tokens)
        self.extra = extra_of(key)

    @property
    def data(self) -> FakeSequence:
        """The manager asks `data` how many tokens are computed; here it is the sequence itself."""
        return self

    def get_num_computed_tokens(self) -> int:
        """The number of tokens computed by completed steps."""
        return self.num_computed

    def get_token_ids(self) -> list[int]:
        """All tokens; read only."""
        return self.tokens

    def extra_hash(self) -> Hashable:
        """The adapter and the salt; None if there is neither."""
        return self.extra

    def block_extra(self, index: int) -> Hashable:
        """The images in the block with this index, and where they begin; None if there are none."""
        return images_in_block(self.images, index, self.block_size) if self.images else None

    def is_prefill(self) -> bool:
        """Whether part of the prompt is not computed yet."""
        return self.num_computed < self.num_prompt


class FakeGroup:
    """What the manager reads of a group."""

    def __init__(self, request_id: str, members: list[FakeSequence]) -> None:
        self.request_id, self.members = request_id, members
        self.encoder: FakeSequence | None = None
        self.prefix: Prefix | None = None  # of the first generation

    def get_seqs(self, status: SequenceStatus | None = None) -> list[FakeSequence]:
        return self.members if status is None else [seq for seq in self.members if seq.status == status]

    @property
    def all_seqs(self) -> list[FakeSequence]:
        """The members, and the encoder sequence if there is one."""
        return self.members if self.encoder is None else [*self.members, self.encoder]

    def is_encoder_decoder(self) -> bool:
        return self.encoder is not None

    def get_encoder_seq(self) -> FakeSequence | None:
        return self.encoder


class BuiltIn(ManagerAdapter):
    """`kvproof.impl.BlockManager`, or a manager with the same interface.

    `self.seqs` are the sequences as the manager sees them, `self.fakes` the groups.
    """

    name = "kvproof"
    capabilities = Capabilities(
        double_free_errors=(DoubleFreeError.__name__,),
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
        steps_are_certain=True,
        waiting_groups=True,
        watermark=True,
        eviction=BLOCK_LRU,
        lost_hits=0,
        hits_whole_prompts=True,
        records_kept=0,
        refusal_slack=0,
        counts_hit_blocks=True,
        admits_lookahead=True,
        looks_up_running=True,
        several_tokens=True,
        common_blocks=True,
        owns_lookahead=True,
        swaps_encoders=True,
        preempts_swapped_encoders=True,
        watermark_of_swap_ins=True,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, manager: Callable[..., Any] = BlockManager) -> None:
        self._manager = manager

    def make(self, config: Config) -> Any:
        self.seqs: dict[int, FakeSequence] = {}
        self.fakes: dict[int, FakeGroup] = {}
        self.encoders: dict[int, FakeGroup] = {}  # by encoder sequence
        self.gone: list[FakeSequence] = []  # those that gave up their tables last
        self.names_device = False  # whether the last reset named the GPU
        return new_manager(self._manager, config)

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        super().new(group, seqs, tokens, key, images)
        self.fakes[group] = FakeGroup(str(group), [self._fake(seq) for seq in seqs])

    def _fake(self, seq: int) -> FakeSequence:
        fake = FakeSequence(seq, self.tokens[seq], self.keys[seq], self.images[seq], self.config.block_size)
        self.seqs[seq] = fake
        return fake

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        self.fakes[group].encoder = FakeSequence(seq, tokens, Key(), (), self.config.block_size)
        self.encoders[seq] = self.fakes[group]

    def hits(self, group: int) -> int:
        return int(self.manager.get_num_cached_tokens(self.fakes[group].members[0]))

    def common_blocks(self, seqs: list[int]) -> list[int]:
        return list(self.manager.get_common_computed_block_ids([self.seqs[seq] for seq in seqs]))

    def forget(self, group: int) -> None:
        for seq in self.fakes[group].members:
            self.manager.remove_seq_from_computed_blocks_tracker(seq)

    def can_admit(self, group: int) -> Admission:
        return ANSWERS[self.manager.can_allocate(self.fakes[group], self.config.lookahead)]

    def can_append(self, group: int) -> bool:
        return bool(self.manager.can_append_slots(self.fakes[group], self.config.lookahead))

    def can_swap_out(self, group: int) -> Admission:
        return Admission.OK if self.manager.can_swap_out(self.fakes[group]) else Admission.LATER

    def can_swap_in(self, group: int) -> Admission:
        """Ask `can_swap_in` whether the GPU has room for the group and its next append: now, later, or never."""
        return ANSWERS[self.manager.can_swap_in(self.fakes[group], self.config.lookahead)]

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """Call `allocate`. The hit is the common computed prefix, in tokens, as a scheduler asks for it."""
        fake = self.fakes[group]
        self.manager.allocate(fake)
        self._admitted.update(self.groups[group])
        for seq in fake.all_seqs:
            seq.status = SequenceStatus.RUNNING
        if not self.config.caching:
            return Admitted()
        return Admitted(len(self.manager.get_common_computed_block_ids(fake.members)) * self.config.block_size)

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        """Call `append_slots`, and return its block copies.

        A further chunk of a prompt has its slots since the admission, but its window may slide.
        """
        return Reserved(self.manager.append_slots(self.seqs[seq], self.config.lookahead))

    def share(self, parent: int, child: int) -> None:
        old, new = self.seqs[parent], self._fake(child)
        new.status, new.num_computed, new.num_prompt = old.status, old.num_computed, old.num_prompt
        self.manager.fork(old, new)
        self.fakes[self._group_of[child]].members.append(new)

    def release(self, seq: int) -> None:
        self.manager.free(self.seqs[seq])

    def free(self, seq: int) -> None:
        """Call `free`, for a waiting sequence as well, and `free_cross` after the last sequence of its group."""
        number = self._group_of[seq]
        fake = self.fakes[number]
        fake.members.remove(self.seqs[seq])
        self._admitted.discard(seq)
        self.release(seq)
        if not fake.members:
            if fake.encoder is not None:
                self.manager.free_cross(fake)
                del self.encoders[fake.encoder.seq_id]
            del self.fakes[number]
        self.gone = [self.seqs.pop(seq)]
        super().free(seq)

    def preempt(self, group: int) -> None:
        """Free every sequence of the group, which waits again: all its tokens are its prompt now."""
        super().preempt(group)
        fake = self.fakes[group]
        is_swapped = fake.members[0].status is SequenceStatus.SWAPPED
        for seq in fake.members:
            seq.status, seq.num_computed, seq.num_prompt = SequenceStatus.WAITING, 0, len(seq.tokens)
        self.gone = fake.members[:]
        if fake.encoder is not None and not is_swapped:
            self.manager.free_cross(fake)

    def swap_out(self, group: int) -> list[Pair]:
        pairs = self.manager.swap_out(self.fakes[group])
        for seq in self.fakes[group].all_seqs:
            seq.status = SequenceStatus.SWAPPED
        return list(pairs)

    def swap_in(self, group: int) -> list[Pair]:
        pairs = self.manager.swap_in(self.fakes[group])
        for seq in self.fakes[group].all_seqs:
            seq.status = SequenceStatus.RUNNING
        return list(pairs)

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """Report the access to each sequence of the step, and the chunk that each group is about to compute."""
        marked = set()
        for scheduled in step:
            self.manager.access_all_blocks_in_seq(self.seqs[scheduled.seq], float(now))
            group = self._group_of[scheduled.seq]
            if group not in marked:
                marked.add(group)
                chunk = scheduled.stop - self.seqs[scheduled.seq].num_computed  # a hit counts as computed
                self.manager.mark_blocks_as_computed(self.fakes[group], chunk)

    def step_done(self, step: list[Scheduled]) -> None:
        for scheduled in step:
            self.seqs[scheduled.seq].num_computed = scheduled.stop

    def reset_cache(self) -> bool:
        """Name the GPU in every second reset: only its blocks are found by look-ups, so this must forget as much."""
        self.names_device = not self.names_device
        return bool(self.manager.reset_prefix_cache(Device.GPU if self.names_device else None))

    def observe(self) -> Observation:
        return observation_of(self.manager, self.tables_of(self.manager.tables))

    def observe_part(self, seqs: Sequence[int]) -> Observation:
        return part_of(self.manager, self.tables_of(seqs))

    def tables_of(self, wanted: Iterable[int]) -> Tables:
        """What a worker is shown of these sequences, of the encoders, and of the sequences that are gone."""
        return tables_of(self.manager, wanted, self.seqs, self.encoders, self.gone)


def extra_of(key: Key) -> Hashable:
    """What KV depends on in addition to tokens: the adapter and the salt; None if there is neither."""
    return (key.adapter_id, key.salt) if key.adapter_id or key.salt else None


def images_in_block(images: tuple[Image, ...], index: int, block_size: int) -> Hashable:
    """The images that lie in a block, each with its first slot relative to the block; None if there are none."""
    first, last = index * block_size, (index + 1) * block_size
    rows = [(i.name, i.start - first) for i in images if i.start < last and first < i.start + i.length]
    return tuple(rows) or None


def new_manager(make: Callable[..., Any], config: Config) -> Any:
    """A manager of this configuration. make: `BlockManager`, or a class with the same constructor."""
    return make(
        block_size=config.block_size,
        num_gpu_blocks=config.num_gpu_blocks,
        num_cpu_blocks=config.num_host_blocks,
        watermark=config.watermark,
        sliding_window=config.window,
        enable_caching=config.caching,
    )


def tables_of(
    manager: Any, wanted: Iterable[int], seqs: Mapping[int, Any], encoders: Mapping[int, Any], gone: Iterable[Any] = ()
) -> Tables:
    """The tables as the calls show them that a worker uses; a table of a sequence that is not known is shown as it is.

    seqs: sequences, by number. encoders: of each encoder sequence, its group. gone: sequences without a table.
    """
    ask, held = manager.get_block_table, manager.tables
    tables = {seq: [(ask(seqs[seq]) if seq in seqs else held[seq].ids)[:]] for seq in wanted if seq in held}
    for seq in gone:
        if ids := ask(seq):
            tables[seq.seq_id] = [ids[:]]
    for number, group in encoders.items():
        if group.request_id in manager.cross_tables:
            tables[number] = [manager.get_cross_block_table(group)[:]]
    return tables


def observation_of(manager: Any, shown: Tables) -> Observation:
    """These tables, and copies of the refcounts and free lists of a manager; the null block has refcount 0."""
    tables, free, reserved = _parts_of(manager, shown)
    refs = manager.refcounts[:]
    for null in reserved:
        refs[null] = 0
    free_ids = [*manager.free_ids(GPU), *manager.evictable_ids(GPU), *manager.free_ids(CPU)]
    return Observation(tables, free, reserved, refs, free_ids)


def part_of(manager: Any, shown: Tables) -> Observation:
    """These tables, and the counts of free blocks."""
    return Observation(*_parts_of(manager, shown))


def _parts_of(manager: Any, shown: Tables) -> tuple[dict[int, list[list[int]]], tuple[int, int], tuple[int, ...]]:
    null = manager.null_block_id
    free = (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks())
    if null is None:
        return shown, free, ()
    return {seq: [[NULL_BLOCK if b == null else b for b in table]] for seq, (table,) in shown.items()}, free, (null,)
