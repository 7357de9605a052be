"""The built-in scheduler with the built-in block manager as a subject."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.manager import Assumption, Observation, Unsupported
from kvproof.check.protocol.scheduler import ABORTED, CAPPED, FINISHED, IGNORED, Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.subjects.builtin.manager import (
    BuiltIn,
    Tables,
    extra_of,
    images_in_block,
    new_manager,
    observation_of,
    part_of,
    tables_of,
)
from kvproof.impl import BlockManager, InvalidValueError, Sequence, SequenceGroup, SequenceStatus
from kvproof.impl.scheduler import PreemptionMode, Scheduler, SchedulerOutputs
from kvproof.impl.scheduler import SchedulerConfig as BuiltInConfig
from kvproof.spec.compilation import sized_function
from kvproof.spec.text.budgets import FCFS
from kvproof.spec.text.identity import Image, Key

MODES = {"auto": None, "recompute": PreemptionMode.RECOMPUTE, "swap": PreemptionMode.SWAP}
RUNNING = SequenceStatus.RUNNING
END_OF = {
    SequenceStatus.FINISHED_STOPPED: FINISHED,
    SequenceStatus.FINISHED_ABORTED: ABORTED,
    SequenceStatus.FINISHED_IGNORED: IGNORED,
    SequenceStatus.FINISHED_LENGTH_CAPPED: CAPPED,
}
ASSUMPTIONS = (
    Assumption("one-step-at-a-time", "A step is completed before the next one is scheduled."),
    Assumption("steps-are-executed", "A step that was scheduled is executed whole, aborted requests included."),
    Assumption("engine-ends-requests", "The engine ends a sequence that has the tokens asked for, or max_model_len."),
)


class ImageSequence(Sequence):
    """A sequence whose blocks also depend on the images in them."""

    def __init__(self, seq_id: int, tokens: list[int], block_size: int, key: Key, images: tuple[Image, ...]) -> None:
        super().__init__(seq_id, tokens, block_size, extra_of(key))
        self.key, self.images = key, images

    def block_extra(self, index: int) -> Hashable:
        """The images that lie in a block, and where."""
        return images_in_block(self.images, index, self.block_size) if self.images else None

    def fork(self, new_seq_id: int) -> ImageSequence:
        forked, other = super().fork(new_seq_id), ImageSequence(new_seq_id, [], self.block_size, self.key, self.images)
        other.data, other.status, other.extra = forked.data, forked.status, forked.extra
        return other


class BuiltInScheduler(SchedulerAdapter):
    """`kvproof.impl.Scheduler`, or one with the same interface."""

    name = "kvproof-scheduler"
    capabilities = replace(
        BuiltIn.capabilities,
        reset=False,
        hits_whole_prompts=False,
        num_overtaken_max=8,
        policies=(FCFS,),
        reports_ends=True,
        reports_each_end=True,
        fills_steps=True,
        begins_prompts=True,
        serves_running=True,
        preempts_last=True,
        preempts_as_set=True,
        refuses_large_groups=True,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS
    refuses_long_prompts = False

    def __init__(self, scheduler: Callable[..., Any] = Scheduler) -> None:
        self._scheduler = scheduler

    def make(self, config: SchedulerConfig) -> Any:
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
        self.manager = new_manager(BlockManager, config)
        self.seqs: dict[int, Sequence] = {}
        self.group_of: dict[int, SequenceGroup] = {}
        self.encoders: dict[int, SequenceGroup] = {}
        return self._scheduler(scheduler_config, self.manager, lambda: float(self.now))

    def add(self, request: Request) -> None:
        size, name = self.config.block_size, str(request.number)
        members = [ImageSequence(seq, request.tokens, size, request.key, request.images) for seq in request.seqs]
        encoder = None if request.encoder is None else Sequence(*request.encoder, size)
        group = SequenceGroup(name, members, encoder)
        for seq in members:
            self.seqs[seq.seq_id], self.group_of[seq.seq_id] = seq, group
        if encoder is not None:
            self.encoders[encoder.seq_id] = group
        self.scheduler.add_seq_group(group)

    def takes_aborts(self) -> bool:
        return True

    def cancel(self, request: Request) -> None:
        self.scheduler.abort_seq_group(str(request.number))
        self._note_end(self.group_of[request.seqs[0]])

    def _note_end(self, group: SequenceGroup) -> None:
        """Keep how a request ended: every sequence that did not finish has the same status."""
        each = {seq.seq_id: END_OF.get(seq.status, seq.status.name) for seq in group.seqs}
        self.each_end |= each
        self.ends[int(group.request_id)] = " and ".join(sorted({*each.values()} - {FINISHED}))

    def next_step(self) -> tuple[SchedulerOutputs, ScheduledStep]:
        outputs = self.scheduler.schedule()
        size = self.config.block_size
        blocks_for = sized_function("blocks_for", size)
        chunks: list[Chunk] = []
        prompts: list[int] = []
        for number, scheduled in enumerate(outputs.scheduled_seq_groups):
            seqs = scheduled.seq_group.get_seqs(RUNNING)
            computed = seqs[0].data.get_num_computed_tokens()
            start, stop = computed + scheduled.num_cached_tokens, computed + scheduled.token_chunk_size
            hit = blocks_for(scheduled.num_cached_tokens) * size
            chunks.append(Chunk(seqs[0].seq_id, start, stop, hit))
            if number < outputs.num_prefill_groups:
                prompts += [seq.seq_id for seq in seqs]
            is_admitted = not computed and len(seqs) > 1
            for seq in seqs[1:]:
                chunks.append(Chunk(seq.seq_id, stop if is_admitted else start, stop))
        for group in (*outputs.ignored_seq_groups, *outputs.aborted_seq_groups):
            self._note_end(group)
        return outputs, ScheduledStep(
            chunks,
            outputs.blocks_to_swap_in,
            outputs.blocks_to_swap_out,
            outputs.blocks_to_copy,
            [int(group.request_id) for group in outputs.ignored_seq_groups],
            [int(group.request_id) for group in outputs.aborted_seq_groups],
            prompts=prompts,
        )

    def fork(self, parent: int, child: int) -> bool:
        new = self.seqs[parent].fork(child)
        try:
            self.scheduler.fork_seq(self.seqs[parent], new)
        except InvalidValueError:
            return False
        self.seqs[child] = new
        group = self.group_of[child] = self.group_of[parent]
        group.add(new)
        return True

    def take_results(self, output: SchedulerOutputs, sampled: dict[int, int], finished: list[int]) -> None:
        for scheduled in output.scheduled_seq_groups:
            for seq in scheduled.seq_group.seqs:
                if seq.status == RUNNING:
                    seq.data.update_num_computed_tokens(scheduled.token_chunk_size)
        for seq_id, token in sampled.items():
            self.seqs[seq_id].append_token_id(token)
        for seq_id in finished:
            self.seqs[seq_id].status = SequenceStatus.FINISHED_STOPPED
        self.scheduler.free_finished_seq_groups()

    def observe(self) -> Observation:
        return observation_of(self.manager, self._tables_of(self.manager.tables))

    def observe_part(self, seqs: list[int]) -> Observation:
        return part_of(self.manager, self._tables_of(seqs))

    def _tables_of(self, seqs: Iterable[int]) -> Tables:
        return tables_of(self.manager, seqs, self.seqs, self.encoders)
