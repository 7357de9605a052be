"""The meaning of the calls of vLLM's V0 interface.

A scheduler allocates slots, and reports at the end of `schedule` what the step computes: one `mark_blocks_as_computed`
for each group that it runs. The next call of another kind comes after the step. The computation of a prompt starts as
in the model runner: after the computed tokens and after the blocks that `get_common_computed_block_ids` returns, but
the last token is always computed.
"""

from kvproof.check.oracle.expected import Group, Status
from kvproof.check.oracle.refinement import impossible_hit
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Admitted, Reserved
from kvproof.check.recording.format import Header, RecordedCall, RecordedSequence
from kvproof.check.recording.replayed_subject import Unjudged
from kvproof.check.recording.trace_judge import RecordingJudge

STEP_CALLS = ("mark_blocks_as_computed", "get_common_computed_block_ids")


class V0Judge(RecordingJudge):
    """Judges a recording of a manager with vLLM's V0 interface."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._hits: dict[int, int] = {}  # tokens found by the last look-up of a waiting sequence
        self._common: dict[int, int] = {}  # tokens that the step need not compute

    def ends_step(self, line: RecordedCall) -> bool:
        """Whether the step is scheduled and the line is about another, or a swap in follows a swap out of the step."""
        if self.is_step_scheduled:
            return line.call not in STEP_CALLS
        return line.call == "swap_in" and bool(self.worker.swap_out)

    def end_step(self) -> None:
        """Execute the step, and forget which tokens it need not compute."""
        super().end_step()
        self._common.clear()

    def _group(self, line: RecordedCall) -> Group:
        group = self.groups.get(self.requests.number_of(line.group))
        if group is None:
            raise Unjudged(f"no earlier line gave blocks to request {line.group}")
        return group

    def on_can_allocate(self, line: RecordedCall) -> None:
        """Judge the answer of `can_allocate`: OK, LATER or NEVER."""
        self.set_lookahead(line.lookahead)
        group, context = self.requests.phantom(line), f"can_allocate({line.group})"
        self.replayed.answer = _admission(line)
        answer = self.manager.questions.ask("can_admit", group)
        self.coverage[f"admission {answer.value}"] += 1
        if answer is Admission.OK:
            self.manager.questions.judge_ok(group, context)
        else:
            self.manager.questions.judge_refusal(group, answer, context)

    def on_get_num_cached_tokens(self, line: RecordedCall) -> None:
        """Judge a look-up. For a waiting sequence, remember the hit until the sequence gets its table."""
        self.look_up(line)
        seq = self.first_sequence(line).seq
        if seq not in self.seqs and isinstance(line.answer, int):
            self._hits[seq] = line.answer

    def on_get_common_computed_block_ids(self, line: RecordedCall) -> None:
        """Remember the blocks that the step need not compute."""
        self.look_up(line)
        if isinstance(line.answer, int):
            for recorded in line.seqs:
                self._common[recorded.seq] = line.answer * self.config.block_size

    def on_allocate(self, line: RecordedCall) -> None:
        """Judge the admission of a waiting group. A later line reports which tokens are computed."""
        group = self.requests.arrive(line)
        context = f"allocate({line.group})"
        found = [self._hits.pop(seq.id, 0) for seq in group.members]
        for hit in found:  # the engine computes what comes after it
            if not self.explainer.machine.function("may_hit")(hit, len(group.members[0].tokens)):
                raise impossible_hit(hit, len(group.members[0].tokens), self.config.block_size, context)
            if hit and not self.config.caching:
                sentence = "a look-up says that $observed tokens are cached, and the manager has no prefix cache"
                raise Finding("hit-computed", sentence, call=context, expected=0, observed=hit)
        hit = min(found)
        self.replayed.answer = Admitted(hit)
        self.call("admission-sound", "admit", group.id, 0)
        self.manager.admission.explain(group, hit, 1, context)
        for seq in group.members:
            self.unscheduled(seq, 0)

    def on_can_append_slots(self, line: RecordedCall) -> None:
        """Judge the answer of `can_append_slots`: yes or no."""
        self.replayed.answer = line.answer
        self.manager.growth.may_append(self._group(line))

    def on_append_slots(self, line: RecordedCall) -> None:
        """Judge new slots. A later line reports how many of their tokens the step computes."""
        recorded = self.first_sequence(line)
        seq = self.requests.known(recorded)
        self.requests.make_room(line)
        self.requests.learn(seq, recorded)
        self.set_lookahead(line.lookahead)
        self.replayed.answer = Reserved(line.answer if isinstance(line.answer, list) else [])
        computed = seq.computed
        stop = computed if computed < seq.num_prompt else len(seq.tokens)
        self.manager.growth.reserve(seq, stop, f"append_slots({seq.id})")
        self.unscheduled(seq, computed)

    def on_mark_blocks_as_computed(self, line: RecordedCall) -> None:
        """Schedule the group: the step computes `num_tokens` more tokens of each running sequence; 0 means all."""
        before = self.explainer.observed
        self.call("total-calls", "step_scheduled", line.group)
        self.oracle.require_unchanged(before, "mark_blocks_as_computed must not allocate or free blocks")
        self.is_step_scheduled = True
        for place, recorded in enumerate(line.seqs):
            if recorded.seq in self.seqs:
                self._schedule(recorded, line.num_tokens, place)

    def _schedule(self, recorded: RecordedSequence, num_tokens: int, place: int) -> None:
        seq = self.seqs[recorded.seq]
        known = len(seq.tokens)
        stop = min(recorded.num_computed + num_tokens, known) if num_tokens else known
        start = seq.computed
        if not start:
            start = stop if place else min(seq.hit, stop - 1)  # the other sequences share what the first one computes
        if recorded.is_prefill and seq.id in self._common:
            start = max(start, min(self._common[seq.id], stop - 1))
        if start <= stop:
            self.scheduled(seq, start, stop)

    def on_fork(self, line: RecordedCall) -> None:
        """Judge a fork: the child shares every block of its parent."""
        if self.worker.is_pending:
            self.end_step()
        parent, child = line.seqs
        if parent.seq not in self.seqs:
            self.look_up(line)
            return
        self.requests.known(parent)
        self.requests.make_room(line)
        if not self.manager.do("fork", parent.seq, child.seq):
            raise Unjudged(f"sequence {parent.seq} has a token without a slot when it is forked, or its child exists")
        self.requests.learn(self.seqs[child.seq], child)

    def on_free(self, line: RecordedCall) -> None:
        """Judge the release of a sequence that has ended or is preempted."""
        self._hits.pop(self.first_sequence(line).seq, None)
        self.leave(line)

    def on_can_swap_out(self, line: RecordedCall) -> None:
        """Judge the answer of `can_swap_out`: yes or no."""
        self.replayed.answer = _admission(line)
        self.manager.questions.ask("can_swap_out", self._group(line))

    def on_swap_out(self, line: RecordedCall) -> None:
        """Judge the swap of the running sequences of a group to the host."""
        self.replayed.answer = line.answer
        self.worker.swap_out += self.manager.swaps.swap(self._group(line), "swap_out", Status.SWAPPED)
        self.manager.step.has_preempted = True

    def on_can_swap_in(self, line: RecordedCall) -> None:
        """Judge the answer of `can_swap_in`: OK, LATER or NEVER."""
        group = self._group(line)
        self.set_lookahead(line.lookahead)
        self.replayed.answer = _admission(line)
        if self.replayed.answer is Admission.OK or not self.manager.do("swap_in", group.id):
            self.manager.questions.ask("can_swap_in", group)

    def on_swap_in(self, line: RecordedCall) -> None:
        """Judge the swap of a group back to the GPU."""
        self.replayed.answer = line.answer
        self.worker.swap_in += self.manager.swaps.swap(self._group(line), "swap_in", Status.RUNNING)


def _admission(line: RecordedCall) -> Admission | None:
    """The answer as an Admission; None if the call raised. Raises Unjudged for any other answer."""
    if line.raised:
        return None
    if isinstance(line.answer, bool):
        return Admission.OK if line.answer else Admission.LATER
    try:
        return Admission[str(line.answer)]
    except KeyError:
        raise Unjudged(f"{line.call} answered {line.answer!r}, which is not OK, LATER or NEVER") from None
