"""Operations of a scheduler's step: it is scheduled, launched, completed."""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.scheduler.base import (
    COMPLETE,
    LAUNCH,
    SCHEDULE,
    SchedulerState,
    UnderWay,
    unfinished,
)
from kvproof.check.oracle.scheduler.host_memory import HostMemory
from kvproof.check.oracle.scheduler.schedule import StepExplainer
from kvproof.check.oracle.scheduler.self_forking import born_since, explain_births
from kvproof.check.oracle.scheduler.service import (
    held_up_in,
    judge_cut_prompts,
    judge_left_waiting,
    judge_order,
    judge_partial_prompts,
    judges_waiting,
)
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import Access, ScheduledStep, SchedulerConfig, SchedulerSubject
from kvproof.spec.text.budgets import fits_a_step, is_within_budget, is_within_threshold
from kvproof.spec.text.identity import Identities
from kvproof.spec.text.state import GPU

GROUP_MEMBERS_MAX = 4


class Stepping(SchedulerState):
    """The operations schedule, launch and complete."""

    def __init__(
        self, subject: SchedulerSubject, config: SchedulerConfig, identities: Identities | None = None
    ) -> None:
        super().__init__(subject, config, identities)
        self.step_explainer = StepExplainer(self)
        self.judges_waiting = judges_waiting(self)

    @enabled_when(lambda judge: judge.may_schedule)
    def op_schedule(self) -> bool:
        """The scheduler decides a step; every change of a table is explained."""
        order = self.explainer.order
        if order is not None:
            order.call_begins()
        step = self.call("total-calls", "schedule")
        check_answer("schedule", step, ScheduledStep)
        if self.is_sparse:
            self.explainer.observed = self.observed_part(list(self.seqs))
        else:
            self.explainer.observed = self.call("total-calls", "observe")
        self.num_steps += 1
        self.scheduled_step = step
        self.used_by_step.clear()
        held_up = held_up_in(self)
        num_unused = self.explainer.unused_in(self.state, GPU) if held_up and self.judges_waiting else 0
        has_moved = self.step_explainer.explain(step)
        self.worker.copies += step.copies
        self.settle(SCHEDULE)
        if self.ending:
            self.judge_ends(SCHEDULE)
        self._judge_loads(step)
        if self.host:
            self.host.schedule(step)
        if order is not None:
            order.used([part.slot for seq in self.used_by_step.values() for part in seq.parts], self.num_steps)
        self._judge_budgets(step)
        judge_order(self, held_up)
        self._judge_progress(has_moved)
        if held_up and self.judges_waiting and not self.step_explainer.num_left:
            judge_left_waiting(self, step, held_up, num_unused)
        flights = self.pending.launch(self.used_by_step.values(), SCHEDULE)
        self.under_way.append(UnderWay(step, frozenset(self.used_by_step), flights))
        if len(self.under_way) > 1 and step.chunks:
            self.coverage["scheduled while another is under way"] += 1
        if self.config.chunked or self.worker.swap_in:
            self._note_mixture(step)
        return True

    def _judge_loads(self, step: ScheduledStep) -> None:
        """A load that begins with a step may write its blocks before or after the step moves blocks."""
        for load in step.loads:
            seq = self.seqs[load.seq]
            first, last = load.hit // self.config.block_size, self.explainer.blocks_for(load.stop)
            for block in seq.observed_table[first:last]:
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
        threshold = self.config.long_prefill_threshold
        has_spare = num_tokens < limits[0] and not self.step_explainer.num_left  # who leaves gives its tokens back late
        if self.config.chunked and self.capabilities.fills_steps and has_spare:
            judge_cut_prompts(self, step, num_tokens)
        if self.config.partial_prefills > 1:
            judge_partial_prompts(self, step)
        num_requests = sum(1 for _ in unfinished(self.requests)) if threshold else 0
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

    def _judge_progress(self, has_moved: bool) -> None:
        if self.last_step is not None and self.is_transferring:
            self.last_step += 1  # waiting for a transfer is no fault of the scheduler
        is_idle = not (has_moved or self.under_way or self.is_transferring or self.without_slot)
        if is_idle and self.requests:
            waiting = [r for r in unfinished(self.requests) if r.members[0].status is not Status.RUNNING]
            if len(waiting) == len(self.requests):
                first = waiting[0]
                raise Finding(
                    "progress",
                    f"nothing runs, and request {first.id}, $status, {len(first.members[0].tokens)} tokens, is neither "
                    "scheduled nor ended",
                    call=SCHEDULE,
                    values={"status": first.members[0].status.value},
                )
        if self.last_step is not None and self.num_steps > self.last_step and self.requests:
            states = ", ".join(f"request {r.id} {r.members[0].status.value}" for r in self.requests.values())
            sentence = f"$observed steps, and not all is done; there is {states}"  # a signature ends at the semicolon
            raise Finding("progress", sentence, expected=self.last_step, observed=self.num_steps)

    def _note_mixture(self, step: ScheduledStep) -> None:
        is_decode = [self._is_decode(self.seqs[chunk.seq]) for chunk in step.chunks]
        if any(is_decode) and not all(is_decode):
            self.coverage["decodes and chunks in one step"] += 1
        if self.worker.swap_in and len(step.chunks) > 1:
            self.coverage["swap in beside others"] += 1

    def _is_decode(self, seq: ExpectedSequence) -> bool:
        return len(seq.tokens) > self.requests[seq.group.id].num_prompt and seq.computed == len(seq.tokens)

    @enabled_when(lambda judge: not judge.is_launched)
    def op_launch(self, tokens: Sequence[int] = ()) -> bool:
        """The worker executes the step, and every reader reads back; with `async_steps` it samples these tokens now."""
        if self.config.async_steps and not tokens:
            return False
        under = self.under_way[-1]
        for access in self.call("total-calls", "launch") or ():
            judge_access(access)
        under.is_launched = True
        if self.host:
            self.host.launch(under.step)
        self.execute()
        if self.host:
            self.host.executed(LAUNCH)
        if self.steps_in_order:
            self.pending.land(under.flights, LAUNCH)
        if self.capabilities.steps_in_order and any(request.is_doomed for request in self.requests.values()):
            self.observe_released(LAUNCH)
            self.settle(LAUNCH)
        if self.config.async_steps:
            self._sample(under, self._sampling(under.step), tokens)
            if self.capabilities.runs_ahead:
                self.call("total-calls", "computed", dict(under.sampled))
        return True

    @enabled_when(lambda judge: bool(judge.under_way) and judge.is_launched and judge.may_complete())
    def op_complete(
        self,
        tokens: Sequence[int],
        forks: Sequence[Sequence[int]] = (),
        stops: Sequence[int] = (),
        arrivals: Sequence[int] = (),
        copied: Sequence[int] = (),
    ) -> bool:
        """The results of the oldest step go back: forks, a token for each sequence computed to its end, and ends.

        arrivals: sequences whose KV has been loaded, or sent. copied: places of the copies to and from host memory that
        are over.
        """
        if not tokens:
            return False
        under = self.under_way.pop(0)
        sampling = self._sampling(under.step)
        pairs, children, too_many = [], [], []
        for parent_id, child_id in forks:
            parent = next((seq for seq in sampling if seq.id == parent_id), None)
            if parent is None or not self._may_fork(parent, child_id):
                continue
            if not fits_a_step(len(parent.group.members) + 1, self.config.max_num_seqs):
                too_many.append((parent_id, child_id))
            else:
                child = parent.forked(child_id)
                pairs.append((parent, child))
                children.append(child)
                parent.group.members.append(child)
                self.seqs[child_id] = child
        if not self.config.async_steps:
            self._sample(under, sampling + children, tokens)
        sampled = {i: t for i, t in under.sampled.items() if (s := self.seqs.get(i)) and not self._is_doomed(s)}
        ended = [
            self.seqs[i]
            for i in sampled
            if i in under.over or (i in stops and all(child.id != i for child in children))
        ]
        forked = [*((parent.id, child.id) for parent, child in pairs), *too_many]
        received = [i for i in dict.fromkeys(arrivals) if i in self.loading]
        sent = [i for i in dict.fromkeys(arrivals) if i in self.sending and self._may_be_sent(i, under)]
        if self.config.transfers:
            self.call("total-calls", "arrived", sent, received)
        if self.host:
            received = self._end_copies(self.host, copied)
        refused = self.call("total-calls", "complete", sampled, forked, [seq.id for seq in ended]) or []
        self._judge_forks(too_many, refused)
        self.pending.land(under.flights, COMPLETE)
        self._arrive(sent, received)
        for seq in ended:
            self.hold_until_complete(self.requests[seq.group.id], COMPLETE)
            if self.requests[seq.group.id].is_sent and seq.slot >= 0:
                self.sending[seq.id] = self.pending.launch([seq], COMPLETE)
                self.coverage["send"] += 1
        self._completed(pairs, children, ended)
        return True

    def _judge_forks(self, too_many: Sequence[tuple[int, int]], refused: Sequence[tuple[int, int]]) -> None:
        """The scheduler refuses exactly those forks that make a request larger than a step can run."""
        if not (refused or too_many) or list(refused) == list(too_many):
            return
        wrong = next(pair for pair in (*too_many, *refused) if (pair in too_many) != (pair in refused))
        if wrong in too_many:
            sentence = (
                f"a fork of sequence {wrong[0]} makes a request of more than $expected sequences, which no step runs"
            )
            raise Finding("progress", sentence, call=COMPLETE, expected=self.config.max_num_seqs)
        raise Finding(
            "admission-exact", f"a fork of sequence {wrong[0]} was refused, and a step can run it", call=COMPLETE
        )

    def _end_copies(self, host: HostMemory, places: Sequence[int]) -> list[int]:
        """Copies to and from host memory are over, and the subject learns which; returns the sequences that loaded."""
        over = host.complete(places)
        self.call("total-calls", "copied", [copy.job for copy in over])
        loads = [(copy, copy.seq) for copy in over if copy.seq is not None]
        for copy, seq_id in loads:
            seq = self.seqs.get(seq_id)
            if seq is not None and seq.slot >= 0 and not self._is_doomed(seq):
                host.judge_load(copy, seq)
        return [seq_id for _, seq_id in loads if seq_id in self.loading]

    def _arrive(self, sent: Sequence[int], received: Sequence[int]) -> None:
        """Transfers end: loaded KV can be read, if its sequence is still there; its blocks are no longer in flight."""
        for seq_id in received:
            flights, seq = self.loading.pop(seq_id), self.seqs.get(seq_id)
            if seq is not None and seq.slot >= 0:
                writes = [(seq, seq.hit, seq.computed)]
                self.worker.writes += writes
                self.worker.execute(0)
                self.explainer.executed(writes)
            else:
                self.coverage["loaded in vain"] += 1
            self.pending.land(flights, COMPLETE)
        for seq_id in sent:
            self.pending.land(self.sending.pop(seq_id), COMPLETE)

    def _may_be_sent(self, seq_id: int, completed: UnderWay) -> bool:
        """Whether the send of a sequence may be over: an engine may carry out an abort after the steps under way."""
        aborted_in = self.aborted_in.get(seq_id)
        return all(under is not aborted_in for under in (completed, *self.under_way))

    def _sampling(self, step: ScheduledStep) -> list[ExpectedSequence]:
        """The sequences that the step computes to the end of their tokens."""
        seqs = [(seq, chunk.stop) for chunk in step.chunks if (seq := self.seqs.get(chunk.seq))]
        return [seq for seq, stop in seqs if self._samples(seq, stop)]

    def _sample(self, under: UnderWay, seqs: Sequence[ExpectedSequence], tokens: Sequence[int]) -> None:
        for index, seq in enumerate(seqs):
            if not any(seq.id in earlier.over for earlier in self.under_way):  # otherwise its result is not used
                under.sampled[seq.id] = tokens[index % len(tokens)]
                seq.grow(self.identities, under.sampled[seq.id])
                if self._is_over(seq):
                    under.over.add(seq.id)

    def _is_doomed(self, seq: ExpectedSequence) -> bool:
        return self.requests[seq.group.id].is_doomed

    def _samples(self, seq: ExpectedSequence, stop: int) -> bool:
        return stop == len(seq.tokens) and not self._is_doomed(seq)

    def _may_fork(self, parent: ExpectedSequence, child_id: int) -> bool:
        request = self.requests[parent.group.id]
        return (
            self.capabilities.fork
            and not self.config.async_steps
            and self.last_step is None
            and child_id not in self.seqs
            and len(self.seqs) < self.num_seqs_max
            and len(request.members) < GROUP_MEMBERS_MAX
            and (
                self.capabilities.refuses_large_groups
                or fits_a_step(len(request.members) + 1, self.config.max_num_seqs)
            )
            and request.num_left(parent) > 1
            and len(parent.tokens) + 1 < self.config.max_model_len
        )

    def _is_over(self, seq: ExpectedSequence) -> bool:
        request = self.requests[seq.group.id]
        return request.num_left(seq) <= 0 or len(seq.tokens) >= self.config.max_model_len

    def _completed(
        self,
        pairs: list[tuple[ExpectedSequence, ExpectedSequence]],
        children: list[ExpectedSequence],
        ended: list[ExpectedSequence],
    ) -> None:
        """Explain the tables: sequences that are over release everything, and children share every block."""
        explainer = self.explainer
        born, copies = born_since(self)
        for seq in ended:
            request = self.requests[seq.group.id]
            if len(request.members) == 1:
                request.is_doomed = True
            else:
                request.members.remove(seq)
                del self.seqs[seq.id]
        shares = [(parent, child, parent.tables) for parent, child in pairs]
        over = [r for r in self.requests.values() if r.is_doomed and not self.is_in_flight(r)]
        for request in over:
            self.forget(request)
        self.observe_released(COMPLETE, [*children, *(child for _, child in born)])
        for parent, child, tables in shares:
            explainer.forked(parent, child, COMPLETE)
            if child.tables != tables:
                raise Finding(
                    "frame-kept",
                    f"fork of {parent.id}: parent $expected, child $observed",
                    call=COMPLETE,
                    expected=tables,
                    observed=child.tables,
                    sequence=child.name,
                )
        for seq in (*ended, *(seq for request in over for seq in request.everyone())):
            if seq.slot >= 0 and seq.id not in self.seqs:
                explainer.freed(seq, COMPLETE)
        explain_births(self, born, copies)
        self.settle(COMPLETE)
        self.coverage["finished"] += len(ended)


def judge_access(access: Access) -> None:
    """A step computes and reads the positions that it should, and finds there what it should. Raises Finding."""
    num_expected, num_observed = len(access.places), len(access.observed)
    if num_observed != num_expected:
        sentence = f"a step {'computes' if access.what == 'token' else 'reads'} $observed positions of $expected"
        raise Finding("read-back", sentence, expected=num_expected, observed=num_observed)
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
