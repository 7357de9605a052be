"""What the calls of vLLM's V0 interface mean.

A scheduler gives out slots, and says at the end of `schedule` what the step computes, one `mark_blocks_as_computed` for
each group that it runs; the next call that is none of these comes when the step is over. Where a prompt's computation
starts is as the model runner settles it: behind what is computed, and behind the blocks that
`get_common_computed_block_ids` names, but the last token is always computed.
"""

from kvproof.check.oracle.expected import Group, Status
from kvproof.check.protocol.manager import Admission, Admitted, Reserved
from kvproof.check.recording.format import Call, Header, RecordedSequence
from kvproof.check.recording.replayed_subject import Unjudged
from kvproof.check.recording.trace_judge import RecordingJudge

TELLS_STEP = ("mark_blocks_as_computed", "get_common_computed_block_ids")


class V0Judge(RecordingJudge):
    """A recording of a manager with vLLM's V0 interface."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._hits: dict[int, int] = {}  # what the last look-up of a sequence that waits found, in tokens
        self._common: dict[int, int] = {}  # what the step need not compute, in tokens

    def ends_step(self, line: Call) -> bool:
        """After the step is told; a swap in comes before any swap out of its step."""
        if self.is_step_scheduled:
            return line.call not in TELLS_STEP
        return line.call == "swap_in" and bool(self.worker.swap_out)

    def end_step(self) -> None:
        """Then the next one has its own tokens that it need not compute."""
        super().end_step()
        self._common.clear()

    def _group(self, line: Call) -> Group:
        group = self.groups.get(self.group_number(line.group))
        if group is None:
            raise Unjudged(f"request {line.group} was given blocks by no line before")
        return group

    def on_can_allocate(self, line: Call) -> None:
        """OK, LATER or NEVER."""
        self.set_lookahead(line.lookahead)
        group, context = self.phantom(line), f"can_allocate({line.group})"
        self.replayed.answer = _admission(line)
        answer = self.ask("can_admit", group)
        self.coverage[f"admission {answer.value}"] += 1
        if answer is Admission.OK:
            self.judge_ok(group, context)
        else:
            self.judge_refusal(group, answer, context)

    def on_get_num_cached_tokens(self, line: Call) -> None:
        """A look-up; of a sequence that waits, what it finds counts when it is given its table."""
        self.look_up(line)
        seq = line.seqs[0].seq
        if seq not in self.seqs and isinstance(line.answer, int):
            self._hits[seq] = line.answer

    def on_get_common_computed_block_ids(self, line: Call) -> None:
        """Blocks that the step need not compute."""
        self.look_up(line)
        if isinstance(line.answer, int):
            for recorded in line.seqs:
                self._common[recorded.seq] = line.answer * self.config.block_size

    def on_allocate(self, line: Call) -> None:
        """A waiting group gets its tables; what is computed of it is told later."""
        group, size = self.arrive(line), self.config.block_size
        found = [self._hits.pop(seq.id, 0) for seq in group.members]
        hit = min(found) // size * size if self.config.caching else 0
        self.replayed.answer = Admitted(hit)
        self.call("admission-sound", "admit", group.id, 0)
        self._admitted(group, hit, 1, f"allocate({line.group})")
        for seq in group.members:
            self.unscheduled(seq, 0)

    def on_can_append_slots(self, line: Call) -> None:
        """Yes or no."""
        self.replayed.answer = line.answer
        self._may_append(self._group(line))

    def on_append_slots(self, line: Call) -> None:
        """Slots for new tokens; how many of them the step computes is told later."""
        recorded = line.seqs[0]
        seq = self.known(recorded)
        self.make_room(line)
        self.learn(seq, recorded)
        self.set_lookahead(line.lookahead)
        self.replayed.answer = Reserved(line.answer if isinstance(line.answer, list) else [])
        computed = seq.computed
        self._reserve(seq, computed if computed < seq.num_prompt else len(seq.tokens), f"append_slots({seq.id})")
        self.unscheduled(seq, computed)

    def on_mark_blocks_as_computed(self, line: Call) -> None:
        """The step computes so many tokens more of each running sequence of the group, or all that are known."""
        before = self.explainer.observed
        self.call("total-calls", "step_scheduled", line.group)
        self.require_unchanged(before, "mark_blocks_as_computed gives and takes no block")
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
            start = stop if place else min(seq.hit, stop - 1)  # who comes with the first shares what that computes
        if recorded.is_prefill and seq.id in self._common:
            start = max(start, min(self._common[seq.id], stop - 1))
        if start <= stop:
            self.scheduled(seq, start, stop)

    def on_fork(self, line: Call) -> None:
        """A child shares every block of its parent."""
        if self.worker.is_pending:
            self.end_step()
        parent, child = line.seqs
        if parent.seq not in self.seqs:
            self.look_up(line)
            return
        self.known(parent)
        self.make_room(line)
        if not self.op_fork(parent.seq, child.seq):
            raise Unjudged(f"sequence {parent.seq} is forked while a token of it has no slot, or into one that exists")
        self.learn(self.seqs[child.seq], child)

    def on_free(self, line: Call) -> None:
        """A sequence is over, or preempted."""
        self._hits.pop(line.seqs[0].seq, None)
        self.leave(line)

    def on_can_swap_out(self, line: Call) -> None:
        """Yes or no."""
        self.replayed.answer = _admission(line)
        self.ask("can_swap_out", self._group(line))

    def on_swap_out(self, line: Call) -> None:
        """The running sequences of a group go to the host."""
        self.replayed.answer = line.answer
        self.worker.swap_out += self._swap(self._group(line), "swap_out", Status.SWAPPED)
        self.preempted_in_step = True

    def on_can_swap_in(self, line: Call) -> None:
        """OK, LATER or NEVER."""
        group = self._group(line)
        self.set_lookahead(line.lookahead)
        self.replayed.answer = _admission(line)
        if self.replayed.answer is Admission.OK or not self.op_swap_in(group.id):
            self.ask("can_swap_in", group)

    def on_swap_in(self, line: Call) -> None:
        """A swapped group comes back."""
        self.replayed.answer = line.answer
        self.worker.swap_in += self._swap(self._group(line), "swap_in", Status.RUNNING)


def _admission(line: Call) -> Admission | None:
    """The answer as a judge takes it; None if there is none, because the call raised."""
    if line.raised:
        return None
    if isinstance(line.answer, bool):
        return Admission.OK if line.answer else Admission.LATER
    try:
        return Admission[str(line.answer)]
    except KeyError:
        raise Unjudged(f"{line.call} answered {line.answer!r}, which is no admission") from None
