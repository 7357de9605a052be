"""The scheduler: which requests run in a step, and which are preempted to make room.

Requests are served in the order of arrival (`scheduler_queues`). One step, without chunked prefill:

1. *Prompts*, unless a group is swapped out: a prompt is admitted if the manager answers OK and both budgets allow it.
   It is computed whole, and a step that admits prompts does nothing else.
2. Otherwise *running groups*: each gets slots for its new token and the lookahead. If it cannot, the group that arrived
   last is preempted; this may be the group itself.
3. If nothing was preempted, *swapped groups* are swapped in while the manager answers OK and the budgets allow it. They
   decode in the same step, as `can_swap_in` promises.

With chunked prefill: 2, then 3, then 1 if nothing was preempted, all with one token budget. A prompt gets all its
blocks at once and computes as many tokens as the budget allows. A chunk may end inside a block: the manager marks only
blocks of which every slot is computed. A group of several waiting sequences is computed whole.

A sequence that is preempted by *recompute* releases its blocks, keeps its tokens and waits again, with all its tokens
as its prompt. A group that is preempted by *swap* moves to the host. A group of several sequences can only be swapped.
If the host has no room for it, the request is ended (FINISHED_ABORTED, `aborted_seq_groups`), and the engine continues.

A group that no later step could run is ended (`ignored_seq_groups`): its prompt exceeds a limit, or the manager answers
NEVER. Its status is FINISHED_IGNORED if it never produced a token, else FINISHED_LENGTH_CAPPED, since it has grown too
long for the pool.

Why every request is served: prompts and swapped groups are tried oldest first, and an idle manager does not answer
LATER. A group is preempted only by an older group that continues, or by itself; the oldest running group continues in
every step. A preempted group samples a token in the step that completes its prompt again or that swaps it in, so every
cycle makes progress.

After `schedule` the worker executes `blocks_to_swap_in`, then `blocks_to_swap_out`, then `blocks_to_copy`, then the
model. The ids in pairs of a swap are numbered per device; those in a copy are GPU blocks. The engine then reports for
each scheduled sequence how many tokens were computed (`data.update_num_computed_tokens(token_chunk_size)`), appends a
token to those that are computed completely, forks, sets statuses, and calls `free_finished_seq_groups`.

Source: vLLM 0.9, vllm/core/scheduler.py, Scheduler.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .admission import AllocStatus
from .block_manager import SelfAttnBlockSpaceManager
from .errors import InvalidValueError
from .growth import Pairs
from .scheduler_config import PreemptionMode, SchedulerConfig
from .scheduler_queues import SchedulerQueues
from .sequence import Sequence, SequenceGroup, SequenceStatus


class SchedulingBudget:
    """The part of the budgets of one step that is left. Tokens that were hit in the prefix cache cost nothing."""

    __slots__ = ("num_seqs_left", "num_tokens_left")

    def __init__(self, config: SchedulerConfig) -> None:
        self.num_tokens_left = config.max_num_batched_tokens
        self.num_seqs_left = config.max_num_seqs

    def can_schedule(self, num_tokens: int, num_seqs: int) -> bool:
        """Whether this much is left; at least one token is scheduled."""
        return 0 < num_tokens <= self.num_tokens_left and num_seqs <= self.num_seqs_left

    def spend(self, num_tokens: int, num_seqs: int) -> None:
        """Subtract it from the budgets. Raises InvalidValueError if they do not allow it."""
        if not self.can_schedule(num_tokens, num_seqs):
            left = f"{self.num_tokens_left} tokens of {self.num_seqs_left} sequences are left"
            raise InvalidValueError("tokens of sequences", (num_tokens, num_seqs), left)
        self.num_tokens_left -= num_tokens
        self.num_seqs_left -= num_seqs


@dataclass
class ScheduledSequenceGroup:
    """One group of a step.

    token_chunk_size: tokens of each running sequence that become computed by the step, from the first one that is not.
    num_cached_tokens: how many of them, at the start of a prompt, were hit in the prefix cache and are not computed.
    num_lookahead_slots: slots that it got beyond its tokens.
    """

    seq_group: SequenceGroup
    token_chunk_size: int
    num_cached_tokens: int = 0
    num_lookahead_slots: int = 0


@dataclass
class SchedulerOutputs:
    """One step. The first `num_prefill_groups` of the scheduled groups compute a prompt or a part of one."""

    num_lookahead_slots: int = 0  # of each decode
    scheduled_seq_groups: list[ScheduledSequenceGroup] = field(default_factory=list)
    num_prefill_groups: int = 0
    num_batched_tokens: int = 0  # tokens computed, those hit not counted
    blocks_to_swap_in: Pairs = field(default_factory=list)
    blocks_to_swap_out: Pairs = field(default_factory=list)
    blocks_to_copy: Pairs = field(default_factory=list)
    ignored_seq_groups: list[SequenceGroup] = field(default_factory=list)  # ended: no later step could run them
    aborted_seq_groups: list[SequenceGroup] = field(default_factory=list)  # ended: the host had no room for them
    running_queue_size: int = 0
    preempted: int = 0  # number of groups that were preempted

    def is_empty(self) -> bool:
        """Whether the worker has nothing to do."""
        return not (
            self.scheduled_seq_groups or self.blocks_to_swap_in or self.blocks_to_swap_out or self.blocks_to_copy
        )


__all__ = ["PreemptionMode", "ScheduledSequenceGroup", "Scheduler", "SchedulerConfig", "SchedulerOutputs"]

RUNNING, WAITING, SWAPPED = SequenceStatus.RUNNING, SequenceStatus.WAITING, SequenceStatus.SWAPPED


class Scheduler(SchedulerQueues):
    """Decides each step. `clock` returns the time of a use of blocks, which decides the order of eviction."""

    def __init__(
        self,
        scheduler_config: SchedulerConfig,
        block_manager: SelfAttnBlockSpaceManager,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(scheduler_config, block_manager)
        self.clock = clock

    def schedule(self) -> SchedulerOutputs:
        """Return the next step. The step before it is over."""
        self._end_step()
        config = self.scheduler_config
        outputs = SchedulerOutputs(config.num_lookahead_slots)
        budget = SchedulingBudget(config)
        prefills: list[ScheduledSequenceGroup] = []
        decodes: list[ScheduledSequenceGroup] = []
        if not config.chunked_prefill_enabled and not self.swapped:
            self._admit_prompts(outputs, budget, prefills)
        if not prefills:
            self._run_on(outputs, budget, prefills, decodes)
            if not outputs.preempted:
                self._swap_in(outputs, budget, prefills, decodes)
                if config.chunked_prefill_enabled and not self.swapped:
                    self._admit_prompts(outputs, budget, prefills)
        outputs.scheduled_seq_groups = prefills + decodes
        outputs.num_prefill_groups = len(prefills)
        outputs.num_batched_tokens = config.max_num_batched_tokens - budget.num_tokens_left
        outputs.running_queue_size = len(self.running)
        self._tell_manager(outputs)
        self._is_step_under_way = True
        return outputs

    def _tell_manager(self, outputs: SchedulerOutputs) -> None:
        """Record which blocks the step uses and which it completes."""
        manager, now = self.block_manager, self.clock()
        for scheduled in outputs.scheduled_seq_groups:
            for seq in scheduled.seq_group.get_seqs(RUNNING):
                manager.access_all_blocks_in_seq(seq, now)
            manager.mark_blocks_as_computed(scheduled.seq_group, scheduled.token_chunk_size)

    # ---- prompts ----

    def _admit_prompts(
        self, outputs: SchedulerOutputs, budget: SchedulingBudget, prefills: list[ScheduledSequenceGroup]
    ) -> None:
        manager, config = self.block_manager, self.scheduler_config
        num_places = config.max_num_seqs - self.running.num_running_seqs() if self.waiting else 0
        while self.waiting:
            group = self.waiting[0]
            seqs = group.get_seqs(WAITING)
            num_tokens = seqs[0].get_len()
            if self._is_over_a_limit(num_tokens, len(seqs)):
                self._give_up(group, outputs)
                continue
            answer = manager.can_allocate(group, config.num_lookahead_slots)
            if answer is AllocStatus.NEVER:
                self._give_up(group, outputs)
                continue
            if answer is AllocStatus.LATER or len(seqs) > num_places:
                return
            num_cached = min(manager.get_num_cached_tokens(seqs[0]), num_tokens - 1)  # the last token must be computed
            num_new = num_tokens - num_cached
            if config.chunked_prefill_enabled and len(seqs) == 1:
                num_new = min(num_new, budget.num_tokens_left)
            if not budget.can_schedule(num_new, len(seqs)):
                return
            budget.spend(num_new, len(seqs))
            num_places -= len(seqs)
            manager.allocate(group)
            self._move(group, seqs, RUNNING)
            prefills.append(ScheduledSequenceGroup(group, num_cached + num_new, num_cached))

    def _is_over_a_limit(self, num_tokens: int, num_seqs: int) -> bool:
        config = self.scheduler_config
        if num_tokens > config.max_model_len or num_seqs > config.max_num_seqs:
            return True
        return num_seqs > 1 and num_tokens > config.max_num_batched_tokens

    # ---- running groups ----

    def _run_on(
        self,
        outputs: SchedulerOutputs,
        budget: SchedulingBudget,
        prefills: list[ScheduledSequenceGroup],
        decodes: list[ScheduledSequenceGroup],
    ) -> None:
        manager = self.block_manager
        groups = list(self.running)
        end = len(groups)  # every group from here on has been preempted
        for index, group in enumerate(groups):
            if index >= end:
                return
            seqs = group.get_seqs(RUNNING)
            scheduled, num_tokens, is_prefill = self._next_tokens(group, seqs, budget)
            if not budget.can_schedule(num_tokens, len(seqs)):
                continue
            while not manager.can_append_slots(group, scheduled.num_lookahead_slots):
                end -= 1
                self._preempt(groups[end], outputs)
                if end == index:
                    return
            budget.spend(num_tokens, len(seqs))
            for seq in seqs:
                outputs.blocks_to_copy += manager.append_slots(seq, scheduled.num_lookahead_slots)
            (prefills if is_prefill else decodes).append(scheduled)

    def _next_tokens(
        self, group: SequenceGroup, seqs: list[Sequence], budget: SchedulingBudget
    ) -> tuple[ScheduledSequenceGroup, int, bool]:
        """Return the next chunk of a running group, its tokens over all sequences, and whether it is of a prompt."""
        data = seqs[0].data
        num_new = data.get_num_uncomputed_tokens()
        if num_new == 1 and not seqs[0].is_prefill():
            lookahead = self.scheduler_config.num_lookahead_slots
            return ScheduledSequenceGroup(group, 1, 0, lookahead), len(seqs), False
        chunk = min(num_new, budget.num_tokens_left)
        return ScheduledSequenceGroup(group, chunk), chunk, True

    def _preempt(self, group: SequenceGroup, outputs: SchedulerOutputs) -> None:
        """Release the GPU blocks of a running group, by recompute or swap."""
        manager = self.block_manager
        seqs = group.get_seqs(RUNNING)
        outputs.preempted += 1
        may_recompute = len(seqs) == 1
        if not may_recompute or self.scheduler_config.preemption_mode is PreemptionMode.SWAP:
            if manager.can_swap_out(group):
                outputs.blocks_to_swap_out += manager.swap_out(group)
                self._move(group, seqs, SWAPPED)
                return
            if not may_recompute:
                self._end(group, SequenceStatus.FINISHED_ABORTED)
                outputs.aborted_seq_groups.append(group)
                return
        manager.free(seqs[0])
        manager.free_cross(group)
        seqs[0].reset_state_for_recompute()
        self._move(group, seqs, WAITING)

    # ---- swapped groups ----

    def _swap_in(
        self,
        outputs: SchedulerOutputs,
        budget: SchedulingBudget,
        prefills: list[ScheduledSequenceGroup],
        decodes: list[ScheduledSequenceGroup],
    ) -> None:
        manager, config = self.block_manager, self.scheduler_config
        num_places = config.max_num_seqs - self.running.num_running_seqs() if self.swapped else 0
        while self.swapped:
            group = self.swapped[0]
            seqs = group.get_seqs(SWAPPED)
            answer = manager.can_swap_in(group, config.num_lookahead_slots)
            if answer is AllocStatus.NEVER:
                self._give_up(group, outputs)
                continue
            scheduled, num_tokens, is_prefill = self._next_tokens(group, seqs, budget)
            if answer is AllocStatus.LATER or len(seqs) > num_places or not budget.can_schedule(num_tokens, len(seqs)):
                return
            budget.spend(num_tokens, len(seqs))
            num_places -= len(seqs)
            outputs.blocks_to_swap_in += manager.swap_in(group)
            self._move(group, seqs, RUNNING)
            for seq in seqs:
                outputs.blocks_to_copy += manager.append_slots(seq, scheduled.num_lookahead_slots)
            (prefills if is_prefill else decodes).append(scheduled)

    # ---- moving between queues ----

    def _move(self, group: SequenceGroup, seqs: list[Sequence], status: SequenceStatus) -> None:
        """Put a group into the queue of its new status."""
        arrival, _ = self._requests[group.request_id]
        self._leave_queue(arrival)
        {WAITING: self.waiting, RUNNING: self.running, SWAPPED: self.swapped}[status].add(arrival, group)
        for seq in seqs:
            seq.status = status

    def _give_up(self, group: SequenceGroup, outputs: SchedulerOutputs) -> None:
        """End a group that no later step could run."""
        has_produced = any(seq.get_output_len() for seq in group.seqs)
        status = SequenceStatus.FINISHED_LENGTH_CAPPED if has_produced else SequenceStatus.FINISHED_IGNORED
        self._end(group, status)
        outputs.ignored_seq_groups.append(group)
