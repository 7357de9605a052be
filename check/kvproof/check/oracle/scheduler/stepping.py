"""A step of the loop: scheduled, launched, completed."""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.firing import NUM_SEQS_MAX
from kvproof.check.oracle.scheduler.base import UnderWay
from kvproof.check.oracle.scheduler.requests import unfinished
from kvproof.check.oracle.scheduler.requests_arriving import Arriving
from kvproof.check.oracle.scheduler.schedule import ABOUT, Scheduling
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import Step
from kvproof.spec.text.budgets import is_within_budget

GROUP_MEMBERS_MAX = 4


class SchedulerStepping(Arriving, Scheduling):
    """schedule, launch, complete."""

    def op_schedule(self) -> bool:
        """The scheduler decides a step, and every table is explained."""
        if not self.may_schedule:
            return False
        step = self._call("total-calls", "schedule")
        check_answer("schedule", step, Step)
        self.explainer.observed = self._call("total-calls", "observe")
        self.num_steps += 1
        self.scheduled = step
        self.using.clear()
        has_moved = self._explain(step)
        self.worker.copies += step.copies
        self.explainer.compare_pool(ABOUT, self._is_at_rest)
        self._hold_budgets(step)
        self._hold_progress(has_moved)
        flights = self.pending.launch(self.using.values(), ABOUT)
        self.under_way.append(UnderWay(step, frozenset(self.using), flights))
        if len(self.under_way) > 1 and step.chunks:
            self.coverage["scheduled while another is under way"] += 1
        if self.config.chunked or self.worker.swap_in:
            self._note_mixture(step)
        return True

    def _hold_budgets(self, step: Step) -> None:
        num_tokens = sum([chunk.stop - chunk.start for chunk in step.chunks])
        limits = self.config.max_num_batched_tokens, self.config.max_num_seqs
        if not is_within_budget(num_tokens, len(step.chunks), *limits):
            raise Finding(
                "budget-kept",
                f"{ABOUT}: {num_tokens} tokens of {len(step.chunks)} sequences; a step has at most "
                f"{limits[0]} tokens of {limits[1]}",
            )

    def _hold_progress(self, has_moved: bool) -> None:
        waiting = [r for r in unfinished(self.requests) if r.members[0].status is not Status.RUNNING]
        if self.last_step is not None and (self.loading or self.sending):
            self.last_step += 1  # who waits for a transfer waits for nobody's fault
        is_idle = not (has_moved or self.under_way or self.loading or self.sending or self.apart)
        if is_idle and waiting and len(waiting) == len(self.requests):
            first = waiting[0]
            raise Finding(
                "progress",
                f"{ABOUT}: nothing runs, and request {first.id}, {first.members[0].status.value}, "
                f"{len(first.members[0].tokens)} tokens, is neither scheduled nor ended",
            )
        if self.last_step is not None and self.num_steps > self.last_step and self.requests:
            states = ", ".join(f"request {r.id} {r.members[0].status.value}" for r in self.requests.values())
            raise Finding("progress", f"{self.num_steps} steps, and not all is done: {states}")

    def _note_mixture(self, step: Step) -> None:
        is_decode = [self._is_decode(self.seqs[chunk.seq]) for chunk in step.chunks]
        if any(is_decode) and not all(is_decode):
            self.coverage["decodes and chunks in one step"] += 1
        if self.worker.swap_in and len(step.chunks) > 1:
            self.coverage["swap in beside others"] += 1

    def _is_decode(self, seq: ExpectedSequence) -> bool:
        return len(seq.tokens) > self.requests[seq.group.id].num_prompt and seq.computed == len(seq.tokens)

    def op_launch(self, tokens: Sequence[int] = ()) -> bool:
        """The worker executes the step, and everyone reads back; with `async_steps`, it samples these tokens now."""
        if self.is_launched or (self.config.async_steps and not tokens):
            return False
        under = self.under_way[-1]
        self._call("total-calls", "launch")
        under.is_launched = True
        self._execute()
        if self.capabilities.steps_in_order:
            self.pending.land(under.flights, "launch()")
            if any(request.is_doomed for request in self.requests.values()):
                self._given_up("launch()")
                self._settle("launch()")
        if self.config.async_steps:
            self._sample(under, self._sampling(under.step), tokens)
            if self.capabilities.runs_ahead:
                self._call("total-calls", "computed", dict(under.sampled))
        return True

    def op_complete(
        self,
        tokens: Sequence[int],
        forks: Sequence[Sequence[int]] = (),
        stops: Sequence[int] = (),
        arrivals: Sequence[int] = (),
    ) -> bool:
        """The results of the oldest step go back: forks, a token for each sequence computed to its end, ends.

        arrivals: sequences whose KV has come, or has been sent.
        """
        if not self.under_way or not self.is_launched or not tokens or not self._may_complete():
            return False
        under = self.under_way.pop(0)
        sampling = self._sampling(under.step)
        pairs, children = [], []
        for parent_id, child_id in forks:
            parent = next((seq for seq in sampling if seq.id == parent_id), None)
            if parent and self._may_fork(parent, child_id):
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
        told = [(parent.id, child.id) for parent, child in pairs]
        sent, received = ([i for i in arrivals if i in context] for context in (self.sending, self.loading))
        if self.config.transfers:
            self._call("total-calls", "arrived", sent, received)
        self._call("total-calls", "complete", sampled, told, [seq.id for seq in ended])
        self.pending.land(under.flights, "complete()")
        self._arrive(sent, received)
        for seq in ended:
            if self.requests[seq.group.id].is_sent and seq.slot >= 0:
                self.sending[seq.id] = self.pending.launch([seq], "complete()")
                self.coverage["send"] += 1
        self._completed(pairs, children, ended)
        return True

    def _arrive(self, sent: Sequence[int], received: Sequence[int]) -> None:
        """Transfers are over: what has come can be read, if its sequence is still there, and blocks are let go."""
        for seq_id in received:
            flights, seq = self.loading.pop(seq_id), self.seqs.get(seq_id)
            if seq is not None and seq.slot >= 0:
                writes = [(seq, seq.hit, seq.computed)]
                self.worker.writes += writes
                self.worker.execute(0)
                self.explainer.executed(writes)
            else:
                self.coverage["loaded in vain"] += 1
            self.pending.land(flights, "complete()")
        for seq_id in sent:
            self.pending.land(self.sending.pop(seq_id), "complete()")

    def _sampling(self, step: Step) -> list[ExpectedSequence]:
        """The sequences that the step computes to their ends."""
        seqs = [(seq, chunk.stop) for chunk in step.chunks if (seq := self.seqs.get(chunk.seq))]
        return [seq for seq, stop in seqs if self._samples(seq, stop)]

    def _sample(self, under: UnderWay, seqs: Sequence[ExpectedSequence], tokens: Sequence[int]) -> None:
        for index, seq in enumerate(seqs):
            if not any(seq.id in earlier.over for earlier in self.under_way):  # else it runs in vain
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
            and len(self.seqs) < NUM_SEQS_MAX
            and len(request.members) < min(GROUP_MEMBERS_MAX, self.config.max_num_seqs)
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
        """What is over has given everything up, and children share every block."""
        context, explainer = "complete()", self.explainer
        born, copies = self._forked()
        for seq in ended:
            request = self.requests[seq.group.id]
            if len(request.members) == 1:
                request.is_doomed = True
            else:
                request.members.remove(seq)
                del self.seqs[seq.id]
        shares = [(parent, child, parent.tables) for parent, child in pairs]
        over = [r for r in self.requests.values() if r.is_doomed and not self._is_in_flight(r)]
        for request in over:
            self._forget(request)
        self._given_up(context, [*children, *(child for _, child in born)])
        for parent, child, shown in shares:
            explainer.forked(parent, child, context)
            if child.tables != shown:
                raise Finding("frame-kept", f"{context}: fork of {parent.id}: parent {shown}, child {child.tables}")
        for seq in (*ended, *(seq for request in over for seq in request.everyone())):
            if seq.slot >= 0 and seq.id not in self.seqs:
                explainer.freed(seq, context)
        self._explain_forks(born, copies)
        self._settle(context)
        self.coverage["finished"] += len(ended)

    def is_done(self) -> bool:
        """Whether every request is over and no step is under way."""
        return not (self.under_way or self.requests or self.loading or self.sending)
