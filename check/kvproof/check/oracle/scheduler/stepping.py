"""Operations of a scheduler's step: it is scheduled, and launched."""

from collections.abc import Sequence
from functools import partial
from itertools import chain

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.scheduler.base import LAUNCH, SCHEDULE, SchedulerState, UnderWay, unfinished
from kvproof.check.oracle.scheduler.drafts import DraftModel, Drafts, require_drafts
from kvproof.check.oracle.scheduler.encoder_outputs import EncoderOutputs
from kvproof.check.oracle.scheduler.failed_loads import Failures
from kvproof.check.oracle.scheduler.running_served import judge_running_served
from kvproof.check.oracle.scheduler.schedule import StepExplainer
from kvproof.check.oracle.scheduler.service import (
    adapters_in,
    held_up_in,
    judge_cut_prompts,
    judge_left_waiting,
    judge_order,
    judge_partial_prompts,
    judge_paused,
    judge_preempted,
    judges_waiting,
)
from kvproof.check.oracle.scheduler.step_checks import Sampling
from kvproof.check.protocol.adapter_check import check_answer, check_pairs
from kvproof.check.protocol.finding import Finding, direction
from kvproof.check.protocol.scheduler import Access, HostStore, Load, ScheduledStep
from kvproof.spec.text.budgets import has_places_for_adapters, is_within_budget, is_within_threshold
from kvproof.spec.text.state import GPU


def pairs_text(copy: Load | HostStore) -> str:
    """The job and the (source, target) pairs of a copy to or from host memory; empty for other loads."""
    pairs = ", ".join(f"{source} -> {target}" for source, target in copy.pairs)
    return f" (copy {copy.job}: {pairs})" if copy.pairs else ""


def step_text(step: ScheduledStep) -> str:
    """A step as text."""
    parts = [f"sequence {c.seq}: {c.start} to {c.stop}" + (f", hit {c.hit}" if c.hit else "") for c in step.chunks]
    parts += [f"sequence {load.seq}: loads {load.hit} to {load.stop}{pairs_text(load)}" for load in step.loads]
    parts += [f"store{pairs_text(store)}" for store in step.stores]
    parts += [f"waits for copy {job}" for job in step.flushes]
    parts += [f"computes images {list(places)} of sequence {seq}" for seq, places in step.encoded]
    parts += [f"verifies {list(tokens)} for sequence {seq}" for seq, tokens in step.drafts]
    for name in ("swap_in", "swap_out", "copies", "ignored", "failed", "dropped"):
        if getattr(step, name):
            parts.append(f"{name.replace('_', ' ')} {list(getattr(step, name))}")
    return "; ".join(parts) or "nothing"


class StepJudge:
    """Does the operations schedule and launch."""

    def __init__(
        self, scheduler: SchedulerState, steps: StepExplainer, sampling: Sampling, drafts: DraftModel | None
    ) -> None:
        self.scheduler, self.oracle, self.config = scheduler, scheduler.oracle, scheduler.config
        self.explainer, self.worker, self.state = scheduler.explainer, scheduler.worker, scheduler.state
        self.capabilities, self.coverage = scheduler.capabilities, scheduler.coverage
        self.seqs, self.call = scheduler.seqs, scheduler.call
        self.steps, self.sampling, self.drafts = steps, sampling, drafts
        self.judges_waiting = judges_waiting(scheduler)
        self.shown = ScheduledStep()  # the last step, as the scheduler answered it
        self.has_idled = False  # whether the last step was empty, and nothing was under way
        self.outputs = EncoderOutputs(scheduler) if scheduler.capabilities.encodes_images else None

    @enabled_when(lambda judge: judge.scheduler.may_schedule)
    def op_schedule(self) -> bool:
        """The scheduler decides a step; every change of a table is explained."""
        order = self.explainer.order
        if order is not None:
            order.call_begins()
        step = self.call("total-calls", "schedule")
        self._check_answer(step)
        if self.oracle.is_sparse:
            self.explainer.observe_part(list(self.seqs))
        else:
            self.explainer.observe()
        self.scheduler.num_steps += 1
        self.oracle.reply.text = partial(step_text, step)
        self.scheduler.used_by_step.clear()
        held_up = held_up_in(self.scheduler)
        num_unused = self.explainer.unused_in(self.state, GPU) if held_up and self.judges_waiting else 0
        outcome = self.drafts.verified(step) if self.drafts else step
        has_moved = self.steps.explain(outcome)
        self.worker.copy(step.copies)
        if self.scheduler.host:
            self.scheduler.host.schedule(step)
        self.scheduler.settle(SCHEDULE)
        if self.scheduler.held:
            self.scheduler.held.judge_named(SCHEDULE)
        if self.scheduler.ending:
            self.scheduler.judge_ends(SCHEDULE)
        if self.capabilities.aborts_late:
            self._forget_reported()
        self._judge_loads(step)
        if order is not None:
            order.used(
                [part.slot for seq in self.scheduler.used_by_step.values() for part in seq.parts],
                self.scheduler.num_steps,
            )
        if self.outputs:
            self.outputs.judge(step)
        self._judge_budgets(step)
        if self.scheduler.paused:
            judge_paused(self.scheduler, step, held_up)
        judge_running_served(self.scheduler, step, self.steps.left, self.outputs)
        for chunk in step.chunks:
            self.scheduler.requests[self.seqs[chunk.seq].group.id].newest_step = self.scheduler.num_steps
        judge_order(self.scheduler, held_up)
        judge_preempted(self.scheduler, held_up, self.steps.left.requests)
        self._judge_progress(has_moved)
        self._judge_stores(step)
        if held_up and self.judges_waiting and not (self.steps.left.num_seqs or self.scheduler.paused):
            judge_left_waiting(self.scheduler, step, held_up, num_unused)
        used = self.scheduler.used_by_step
        under = UnderWay(outcome, frozenset(used), [], self.scheduler.num_steps)
        under.flights += self.scheduler.pending.launch(used.values(), SCHEDULE, under.starts)
        if self.drafts:
            under.accepted, under.rejected = self.drafts.accepted, self.scheduler.num_rejected
        self.scheduler.under_way.append(under)
        if len(self.scheduler.under_way) > 1 and step.chunks:
            self.coverage["scheduled while another is under way"] += 1
        if self.config.chunked or self.worker.swap_in:
            self._note_mixture(step)
        return True

    def _check_answer(self, step: ScheduledStep) -> None:
        """Raise AdapterError unless this is a step whose lists of blocks have pairs, and no more than can be needed."""
        self.shown = step
        check_answer("schedule", step, ScheduledStep)
        num_most = max(1, len(self.seqs)) * self.explainer.num_blocks
        for name, pairs in (("swap_in", step.swap_in), ("swap_out", step.swap_out), ("copies", step.copies)):
            check_pairs(f"schedule().{name}", pairs, num_most)
        if step.drafts:
            require_drafts(step.drafts)

    def _forget_reported(self) -> None:
        """Aborted requests that the scheduler reported with this step are over, unless a step still uses them."""
        for request in self.scheduler.no_longer_needed():
            if any(seq.id in self.scheduler.used_by_step for seq in request.everyone()):
                sentence = f"request {request.id} is reported as aborted, and scheduled"
                raise Finding("no-use-after-free", sentence, call=SCHEDULE)
            self.scheduler.forget(request)
            for seq in request.everyone():
                if seq.slot >= 0:
                    self.explainer.freed(seq, SCHEDULE)

    def _judge_loads(self, step: ScheduledStep) -> None:
        """A load that begins with a step may write its blocks before or after the step moves blocks."""
        for load in step.loads:
            seq = self.seqs[load.seq]
            size, blocks_for = self.config.block_size, self.explainer.blocks_for
            tables = [
                part.observed_table[part.at(load.hit) // size : blocks_for(part.at(load.stop))] for part in seq.parts
            ]
            for block in chain(*tables):
                if (pair := self.worker.disturbs_load(block)) is not None:
                    raise Finding(
                        "mapping-hazard-free",
                        f"the load of $sequence writes block {block} while the step copies {pair[0]} -> {pair[1]}",
                        call=SCHEDULE,
                        blocks=[block],
                        sequence=seq.name,
                    )

    def _judge_budgets(self, step: ScheduledStep) -> None:
        nums = [chunk.stop - chunk.start for chunk in step.chunks]
        num_tokens, num_seqs = sum(nums), len(nums)
        if self.capabilities.bounds_only_steps:
            num_seqs -= nums.count(0)  # these get blocks, and are not in the batch
        limits = self.config.max_num_batched_tokens, self.config.max_num_seqs
        if not is_within_budget(num_tokens, num_seqs, *limits):
            raise Finding(
                "budget-kept",
                f"{num_tokens} tokens of {num_seqs} sequences; a step has at most {limits[0]} tokens of {limits[1]}",
                call=SCHEDULE,
                expected=limits,
                observed=(num_tokens, num_seqs),
            )
        if not (self.capabilities.bounds_only_steps or self.capabilities.forks_itself):  # these give blocks early
            self._judge_empty_chunks(step)
        num_adapters = len(adapters_in(self.scheduler, step))
        if not has_places_for_adapters(num_adapters, self.config.max_loras):
            raise Finding(
                "budget-kept",
                "a step has sequences of $observed adapters, and at most $expected may be in one",
                call=SCHEDULE,
                expected=self.config.max_loras,
                observed=num_adapters,
            )
        threshold = self.config.long_prefill_threshold
        has_spare = num_tokens < limits[0] and not self.steps.left.num_seqs  # who leaves gives its tokens back late
        if self.config.chunked and self.capabilities.fills_steps and has_spare and not self.config.encoder_room:
            judge_cut_prompts(self.scheduler, step, num_tokens)
        if self.config.partial_prefills > 1:
            judge_partial_prompts(self.scheduler, step)
        num_requests = sum(1 for _ in unfinished(self.scheduler.requests)) if threshold else 0
        for chunk in step.chunks if threshold else ():
            if not is_within_threshold(chunk.stop - chunk.start, threshold, num_requests):
                raise Finding(
                    "budget-kept",
                    "a step computes $observed tokens of $sequence, and at most $expected of one prompt",
                    call=SCHEDULE,
                    expected=threshold,
                    observed=chunk.stop - chunk.start,
                    sequence=f"sequence {chunk.seq}",
                )

    def _judge_empty_chunks(self, step: ScheduledStep) -> None:
        """A step computes a token of each request in it; members who are admitted together share their tokens."""
        empty = {self.seqs[chunk.seq].group.id for chunk in step.chunks if chunk.start == chunk.stop}
        for chunk in step.chunks if empty else ():
            if chunk.start < chunk.stop:
                empty.discard(self.seqs[chunk.seq].group.id)
        if empty:
            raise Finding(
                "budget-kept", f"request {min(empty)} is in a step that computes no token of it", call=SCHEDULE
            )

    def _judge_progress(self, has_moved: bool) -> None:
        scheduler = self.scheduler
        if scheduler.last_step is not None and scheduler.is_transferring:
            scheduler.last_step += 1  # waiting for a transfer is no fault of the scheduler
        is_idle = not (
            has_moved or scheduler.paused or scheduler.under_way or scheduler.is_transferring or scheduler.without_slot
        )
        may_idle, self.has_idled = self.capabilities.idles_once and not self.has_idled, is_idle
        if is_idle and may_idle:
            if scheduler.last_step is not None:
                scheduler.last_step += 1  # as if the scheduler had been asked once
        elif is_idle and scheduler.requests:
            waiting = [r for r in unfinished(scheduler.requests) if r.members[0].status is not Status.RUNNING]
            if len(waiting) == len(scheduler.requests):
                first = waiting[0]
                raise Finding(
                    "progress",
                    f"nothing runs, and request {first.id}, $status, {len(first.members[0].tokens)} tokens, is neither "
                    "scheduled nor ended",
                    call=SCHEDULE,
                    values={"status": first.members[0].status.value},
                )
        if scheduler.last_step is not None and scheduler.num_steps > scheduler.last_step and scheduler.requests:
            states = ", ".join(f"request {r.id} {r.members[0].status.value}" for r in scheduler.requests.values())
            sentence = f"$observed steps, and not all is done; there is {states}"  # a signature ends at the semicolon
            raise Finding("progress", sentence, expected=scheduler.last_step, observed=scheduler.num_steps)

    def _judge_stores(self, step: ScheduledStep) -> None:
        """With no request left, an engine that goes on for its stores comes to rest."""
        scheduler = self.scheduler
        num_stored = sum(len(store.pairs) for store in step.stores)
        scheduler.num_stored_idly = 0 if scheduler.requests else scheduler.num_stored_idly + num_stored
        if self.capabilities.steps_for_stores and scheduler.stores_idly:
            sentence = "no request is left, and the connector has stored $observed blocks since; the pool has $expected"
            num_stored, num_blocks = scheduler.num_stored_idly, self.config.num_gpu_blocks
            raise Finding("progress", sentence, call=SCHEDULE, expected=num_blocks, observed=num_stored)

    def _note_mixture(self, step: ScheduledStep) -> None:
        is_decode = [self._is_decode(self.seqs[chunk.seq]) for chunk in step.chunks]
        if any(is_decode) and not all(is_decode):
            self.coverage["decodes and chunks in one step"] += 1
        if self.worker.swap_in and len(step.chunks) > 1:
            self.coverage["swap in beside others"] += 1

    def _is_decode(self, seq: ExpectedSequence) -> bool:
        return len(seq.tokens) > self.scheduler.requests[seq.group.id].num_prompt and seq.computed == len(seq.tokens)

    @enabled_when(lambda judge: not judge.scheduler.is_launched)
    def op_launch(self, tokens: Sequence[int] = (), drafts: Sequence[Drafts] = (), failures: Failures = ()) -> bool:
        """The worker executes the step, and every reader reads back; with `async_steps` it samples these tokens now.

        drafts: then, of sequences that go on, what the draft model guesses, as for `complete`. failures: loads within
        the step that fail.
        """
        if self.config.async_steps and not tokens:
            return False
        under = self.scheduler.under_way[-1]
        for access in self.call("total-calls", "launch") or ():
            judge_access(access)
        under.is_launched = True
        if self.scheduler.host:
            self.scheduler.host.launch(under.step)
        self.steps.failed_loads.launch(under, failures)
        self.scheduler.execute()
        if self.scheduler.host:
            self.scheduler.host.executed(LAUNCH)
        if self.scheduler.steps_in_order:
            self.scheduler.pending.land(under.flights, LAUNCH)
        if self.capabilities.steps_in_order and any(request.is_doomed for request in self.scheduler.requests.values()):
            self.scheduler.observe_released(LAUNCH)
            self.scheduler.judge_sends(LAUNCH)
            self.scheduler.settle(LAUNCH)
        if self.config.async_steps:
            self.sampling.sample(under, self.sampling.of(under.step), tokens)
            if self.capabilities.runs_ahead:
                self.call("total-calls", "computed", dict(under.sampled))
            if self.drafts:
                self.drafts.propose(drafts, {*under.sampled})
        return True


def judge_access(access: Access) -> None:
    """A step computes and reads the positions that it should, and finds there what it should. Raises Finding."""
    num_expected, num_observed = len(access.places), len(access.observed)
    if num_observed != num_expected:
        sentence = f"a step {'computes' if access.what == 'token' else 'reads'} $observed positions of $expected"
        about = direction([(num_expected, num_observed)])
        raise Finding("read-back", sentence, expected=num_expected, observed=num_observed, about=about)
    for (request, position), expected, observed in zip(access.places, access.expected, access.observed, strict=True):
        if observed == expected:
            continue
        if access.what == "token":
            sentence = (
                f"request {request}: its position {position} is computed as position {observed[0]} of token "
                f"{observed[1]}, and is of token {expected[1]}"
            )
        else:
            sentence = (
                f"request {request} reads position {position}: its slot of the cache tensor holds the {access.what} of "
                "another token (number $observed for $expected)"
            )
        raise Finding("read-back", sentence, expected=expected, observed=observed, sequence=f"request {request}")
