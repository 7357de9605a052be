"""A step of the loop: scheduled, launched, completed."""

from collections.abc import Sequence

from kvproof.check.explain import NUM_SEQS_MAX
from kvproof.check.finding import Finding
from kvproof.check.loop.arriving import Arriving
from kvproof.check.loop.requests import unfinished
from kvproof.check.loop.scheduling import ABOUT, Scheduling
from kvproof.check.loop.subject import Step
from kvproof.check.protocol_check import check_answer
from kvproof.check.truth import Sequence as Seq
from kvproof.check.truth import Status

GROUP_MEMBERS_MAX = 4


class LoopStepping(Arriving, Scheduling):
    """schedule, launch, complete."""

    def op_schedule(self) -> bool:
        """The scheduler decides a step, and every table is explained."""
        if self.step is not None:
            return False
        step = self._call("total-calls", "schedule")
        check_answer("schedule", step, Step)
        self.explainer.seen = self._call("total-calls", "observe")
        self.num_steps += 1
        self.scheduled = step
        self.in_flight.clear()
        has_moved = self._explain(step)
        self.worker.copies += step.copies
        self.explainer.compare_pool(ABOUT, self._is_at_rest)
        self._hold_budgets(step)
        self._hold_progress(has_moved)
        self.step, self.is_launched = step, False
        if self.config.chunked or self.worker.swap_in:
            self._note_mixture(step)
        return True

    def _hold_budgets(self, step: Step) -> None:
        num_tokens = sum([chunk.stop - chunk.start for chunk in step.chunks])
        limits = self.config.max_num_batched_tokens, self.config.max_num_seqs
        if num_tokens > limits[0] or len(step.chunks) > limits[1]:
            raise Finding(
                "budget-kept",
                f"{ABOUT}: {num_tokens} tokens of {len(step.chunks)} sequences; a step has at most "
                f"{limits[0]} tokens of {limits[1]}",
            )

    def _hold_progress(self, has_moved: bool) -> None:
        waiting = [r for r in unfinished(self.requests) if r.members[0].status is not Status.RUNNING]
        if not has_moved and waiting and len(waiting) == len(self.requests):
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
            self.fired["decodes and chunks in one step"] += 1
        if self.worker.swap_in and len(step.chunks) > 1:
            self.fired["swap in beside others"] += 1

    def _is_decode(self, seq: Seq) -> bool:
        return len(seq.tokens) > self.requests[seq.group.id].num_prompt and seq.computed == len(seq.tokens)

    def op_launch(self) -> bool:
        """The worker executes the step, and everyone reads back."""
        if self.step is None or self.is_launched:
            return False
        worker, explainer, lookahead = self.worker, self.explainer, self.config.lookahead
        self._call("total-calls", "launch")
        self.is_launched = True
        if not worker.is_pending:
            worker.fresh.clear()
            return True
        writes, copies = worker.writes[:], worker.copies[:]
        other = worker.in_other_order(lookahead) if worker.order_may_matter() else None
        worker.execute(lookahead)
        explainer.executed(writes)
        self._compare_memory(other, copies)
        return True

    def op_complete(
        self, tokens: Sequence[int], forks: Sequence[Sequence[int]] = (), stops: Sequence[int] = ()
    ) -> bool:
        """The results go back: forks, then a token for each sequence that is computed to its end, then the ends."""
        if self.step is None or not self.is_launched or not tokens:
            return False
        sampling = [
            seq for chunk in self.step.chunks if (seq := self.seqs[chunk.seq]) and self._samples(seq, chunk.stop)
        ]
        pairs, children = [], []
        for parent_id, child_id in forks:
            parent = next((seq for seq in sampling if seq.id == parent_id), None)
            if parent and self._may_fork(parent, child_id):
                child = parent.forked(child_id)
                pairs.append((parent, child))
                children.append(child)
                parent.group.members.append(child)
                self.seqs[child_id] = child
        sampling += children
        sampled = {}
        for index, seq in enumerate(sampling):
            sampled[seq.id] = tokens[index % len(tokens)]
            seq.grow(self.identities, sampled[seq.id])
        ended = [seq for seq in sampling if self._is_over(seq) or (seq.id in stops and seq not in children)]
        told = [(parent.id, child.id) for parent, child in pairs]
        self._call("total-calls", "complete", sampled, told, [seq.id for seq in ended])
        self.step = None
        self._completed(pairs, children, ended)
        return True

    def _samples(self, seq: Seq, stop: int) -> bool:
        return stop == len(seq.tokens) and not self.requests[seq.group.id].is_doomed

    def _may_fork(self, parent: Seq, child_id: int) -> bool:
        request = self.requests[parent.group.id]
        return (
            self.capabilities.fork
            and self.last_step is None
            and child_id not in self.seqs
            and len(self.seqs) < NUM_SEQS_MAX
            and len(request.members) < min(GROUP_MEMBERS_MAX, self.config.max_num_seqs)
            and request.num_left(parent) > 1
            and len(parent.tokens) + 1 < self.config.max_model_len
        )

    def _is_over(self, seq: Seq) -> bool:
        request = self.requests[seq.group.id]
        return request.num_left(seq) <= 0 or len(seq.tokens) >= self.config.max_model_len

    def _completed(self, pairs: list[tuple[Seq, Seq]], children: list[Seq], ended: list[Seq]) -> None:
        """What is over has given everything up, and children share every block."""
        about, explainer = "complete()", self.explainer
        over = [request for request in self.requests.values() if request.is_doomed]
        for seq in ended:
            request = self.requests[seq.group.id]
            if len(request.members) == 1:
                over.append(request)
            else:
                request.members.remove(seq)
                del self.seqs[seq.id]
        shares = [(parent, child, parent.shown) for parent, child in pairs]
        for request in over:
            self._forget(request)
        self._observe(about, children)
        for parent, child, shown in shares:
            explainer.forked(parent, child, about)
            if child.shown != shown:
                raise Finding("frame-kept", f"{about}: fork of {parent.id}: parent {shown}, child {child.shown}")
        for seq in (*ended, *(seq for request in over for seq in request.everyone())):
            if seq.slot >= 0:
                explainer.freed(seq, about)
        self._settle(about)
        self.fired["finished"] += len(ended)
        self.in_flight.clear()

    def is_done(self) -> bool:
        """Whether every request is over and no step is under way."""
        return self.step is None and not self.requests
