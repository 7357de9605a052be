"""The built-in scheduler, with the built-in block manager, as a subject of the loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from kvproof.check.protocol.manager import NULL_BLOCK, Assumption, Capabilities, Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, SchedulerConfig, Step
from kvproof.impl import BlockManager, Device, InvalidValueError, Sequence, SequenceGroup, SequenceStatus
from kvproof.impl.scheduler import PreemptionMode, Scheduler, SchedulerOutputs
from kvproof.impl.scheduler import SchedulerConfig as BuiltInConfig
from kvproof.spec.text.identity import Image, Key

MODES = {"auto": None, "recompute": PreemptionMode.RECOMPUTE, "swap": PreemptionMode.SWAP}
RUNNING = SequenceStatus.RUNNING
ASSUMPTIONS = (
    Assumption("one-step-at-a-time", "A step is completed before the next one is scheduled."),
    Assumption("steps-are-executed", "A step that was scheduled is executed whole, aborted requests included."),
    Assumption("engine-ends-requests", "The engine ends a sequence that has the tokens asked for, or max_model_len."),
)


class LoopSequence(Sequence):
    """A sequence whose blocks depend on the images that lie in them, too."""

    def __init__(self, seq_id: int, tokens: list[int], block_size: int, key: Key, images: tuple[Image, ...]) -> None:
        super().__init__(seq_id, tokens, block_size, (key.adapter_id, key.salt) if key.adapter_id or key.salt else None)
        self.key, self.images = key, images

    def block_extra(self, index: int) -> Hashable:
        """The images that lie in a block, and where."""
        if not self.images:
            return None
        first, last = index * self.block_size, (index + 1) * self.block_size
        rows = [(i.name, i.start - first) for i in self.images if i.start < last and first < i.start + i.length]
        return tuple(rows) or None

    def fork(self, new_seq_id: int) -> LoopSequence:
        """A sequence with the same tokens so far."""
        other = LoopSequence(new_seq_id, [], self.block_size, self.key, self.images)
        other.data, other.status = self.data.copy(), self.status
        return other


class BuiltInScheduler:
    """`kvproof.impl.Scheduler`, or one with the same interface, behind the protocol."""

    name = "kvproof-scheduler"
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
        waiting_groups=True,
        watermark=True,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, make: Callable[..., Any] = Scheduler) -> None:
        self.make = make

    def open(self, config: SchedulerConfig) -> None:
        """A new scheduler and its manager."""
        if config.window and config.caching:
            raise Unsupported("a sliding window goes not with prefix caching")
        try:
            scheduler_config = BuiltInConfig(
                config.max_num_batched_tokens,
                config.max_num_seqs,
                config.max_model_len,
                config.lookahead,
                config.chunked,
                MODES[config.preemption],
            )
        except InvalidValueError as error:
            raise Unsupported(str(error)) from error
        self.config, self.now = config, 0
        self.manager = BlockManager(
            config.block_size,
            config.num_gpu_blocks,
            config.num_host_blocks,
            config.watermark,
            config.window,
            config.caching,
        )
        self.scheduler = self.make(scheduler_config, self.manager, lambda: float(self.now))
        self.seqs: dict[int, Sequence] = {}
        self.groups: dict[int, SequenceGroup] = {}
        self.group_of: dict[int, SequenceGroup] = {}
        self.encoders: dict[str, int] = {}
        self.outputs = SchedulerOutputs()

    def add_request(
        self,
        request: int,
        seqs: list[int],
        tokens: list[int],
        key: Key,
        images: tuple[Image, ...],
        max_tokens: int,
        encoder: tuple[int, list[int]] | None,
    ) -> None:
        """add_seq_group."""
        size = self.config.block_size
        members = [LoopSequence(seq_id, tokens, size, key, images) for seq_id in seqs]
        encoder_seq = None if encoder is None else Sequence(encoder[0], encoder[1], size)
        group = self.groups[request] = SequenceGroup(str(request), members, encoder_seq)
        for seq in members:
            self.seqs[seq.seq_id], self.group_of[seq.seq_id] = seq, group
        if encoder is not None:
            self.encoders[str(request)] = encoder[0]
        self.scheduler.add_seq_group(group)

    def abort(self, request: int) -> None:
        """abort_seq_group."""
        self.scheduler.abort_seq_group(str(request))

    def schedule(self) -> Step:
        """schedule."""
        outputs = self.outputs = self.scheduler.schedule()
        size = self.config.block_size
        chunks = []
        for scheduled in outputs.scheduled_seq_groups:
            seqs = scheduled.seq_group.get_seqs(RUNNING)
            computed = seqs[0].data.get_num_computed_tokens()
            start, stop = computed + scheduled.num_cached_tokens, computed + scheduled.token_chunk_size
            hit = -(-scheduled.num_cached_tokens // size) * size
            chunks.append(Chunk(seqs[0].seq_id, start, stop, hit))
            is_admitted = not computed and len(seqs) > 1
            for seq in seqs[1:]:
                chunks.append(Chunk(seq.seq_id, stop if is_admitted else start, stop))
        return Step(
            chunks,
            outputs.blocks_to_swap_in,
            outputs.blocks_to_swap_out,
            outputs.blocks_to_copy,
            [int(group.request_id) for group in outputs.ignored_seq_groups],
            [int(group.request_id) for group in outputs.aborted_seq_groups],
        )

    def launch(self) -> None:
        """Time passes."""
        self.now += 1

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        """What an engine does with the results of a step."""
        for scheduled in self.outputs.scheduled_seq_groups:
            for seq in scheduled.seq_group.seqs:
                if seq.status == RUNNING:
                    seq.data.update_num_computed_tokens(scheduled.token_chunk_size)
        for parent_id, child_id in forks:
            parent, group = self.seqs[parent_id], self.group_of[parent_id]
            child = parent.fork(child_id)
            self.scheduler.fork_seq(parent, child)
            group.add(child)
            self.seqs[child_id], self.group_of[child_id] = child, group
        for seq_id, token in sampled.items():
            self.seqs[seq_id].append_token_id(token)
        for seq_id in finished:
            self.seqs[seq_id].status = SequenceStatus.FINISHED_STOPPED
        self.scheduler.free_finished_seq_groups()

    def observe(self) -> Observation:
        """Tables, refcounts and free lists."""
        manager = self.manager
        null = manager.null_block_id
        reserved: tuple[int, ...] = ()
        refs = manager.refcounts[:]
        if null is None:
            tables = {seq: [table.ids[:]] for seq, table in manager.tables.items()}
        else:
            tables = {
                seq: [[NULL_BLOCK if b == null else b for b in table.ids]] for seq, table in manager.tables.items()
            }
            reserved = (null,)
            refs[null] = 0
        for name, cross in manager.cross_tables.items():
            tables[self.encoders[name]] = [cross.ids[:]]
        free_ids = manager.free_ids(Device.GPU) + manager.evictable_ids(Device.GPU) + manager.free_ids(Device.CPU)
        free = (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks())
        return Observation(tables, free, reserved, refs, free_ids)


def make() -> BuiltInScheduler:
    """The built-in scheduler, ready to be opened."""
    return BuiltInScheduler()
