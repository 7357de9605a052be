"""Operations by which running sequences grow: a token is sampled, slots are reserved, a child is forked."""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.manager.questions import Questions, check_copies, chunk_end, require_slots
from kvproof.check.oracle.manager.step import GROWING, StepJudge
from kvproof.check.oracle.needed_blocks import cost_max, judge_window
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import check_answer, check_pairs
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Refused, Reserved
from kvproof.spec.text import operations
from kvproof.spec.text.state import GPU


class GrowthJudge:
    """Does the operations sample, extend, append and fork."""

    def __init__(self, oracle: Oracle, groups: dict[int, Group], step: StepJudge, questions: Questions) -> None:
        self.oracle, self.explainer, self.worker, self.state = oracle, oracle.explainer, oracle.worker, oracle.state
        self.config, self.capabilities, self.coverage = oracle.config, oracle.capabilities, oracle.coverage
        self.call, self.reply, self.seqs = oracle.call, oracle.reply, oracle.seqs
        self.groups, self.step, self.questions = groups, step, questions

    def op_sample(self, gid: int, tokens: Sequence[int]) -> bool:
        """The model samples a token for every member of a running group; the tokens have no slots yet."""
        self.step.begin()
        for seq, token in zip(self.groups[gid].members, tokens, strict=False):
            seq.grow(self.oracle.identities, token)
            self.call("total-calls", "grow", seq.id, token)
        return True

    def op_extend(self, seq_id: int, num_tokens: int) -> bool:
        """The next chunk of a prompt is scheduled."""
        if num_tokens < 1:
            return False
        self.step.enter(GROWING)
        seq = self.seqs[seq_id]
        if self.may_append(seq.group):
            self.reserve(seq, chunk_end(self.oracle, seq, seq.computed, num_tokens))
        return True

    def reserve(self, seq: ExpectedSequence, stop: int, call: str = "", num_over: int | None = None) -> None:
        """Reserve slots up to position `stop`, explain the new tables, and schedule the tokens.

        call: as a recording names it; by default as the protocol does. num_over: tokens that no step in flight reads
        any more, if a recording says it; by default all that are computed.
        """
        before, start = self.explainer.observed, seq.computed
        context = call or f"reserve({seq.id}, {stop - start})"
        try:
            result = self.call("admission-sound", "reserve", seq.id, stop - start)
        except Finding as finding:
            self.questions.blame(finding, seq.group.id, cost_max(self.oracle, [(seq, stop)]), GPU)
            raise
        check_answer("reserve", result, Reserved, Refused)
        if isinstance(result, Refused):
            if self.capabilities.has_admission_query:
                sentence, values = f"{context} was refused after an OK: $reason", {"reason": result.reason}
                refused = Finding("admission-sound", sentence, values=values)
                self.questions.blame(refused, seq.group.id, cost_max(self.oracle, [(seq, stop)]), GPU)
                raise refused
            self.questions.judge_no(cost_max(self.oracle, [(seq, stop)]), GPU, 0, context)
            self.reply.text, self.reply.is_refusal = "refused", True
            self.coverage["append refused"] += 1
            if not (self.capabilities.window_drop_when_refused and self.oracle.leaves_entries):
                self.oracle.require_unchanged(before, f"{context} was refused")
                return
            self.oracle.observe(context, [seq])
            self.explainer.extended(seq, (), self.config.caching, context)
            self.oracle.settle(context)
            return
        if not isinstance(result.copies, list | tuple):
            check_pairs("reserve().copies", result.copies)
        copies = list(result.copies)
        if copies:
            check_copies(self.oracle, "reserve().copies", copies, context)
        self.oracle.observe(context, [seq])
        if self.capabilities.dedups_after_step:
            self._exchange_filled(seq, context)
        self.explainer.extended(seq, copies, self.config.caching, context)
        self.oracle.settle(context)
        is_decode = start >= seq.num_prompt  # only then are there drafts; a prompt's last chunk needs no room for them
        is_last = is_decode and stop == len(seq.tokens)
        is_ahead = is_last and not self.capabilities.reserves_once
        require_slots(self.oracle, seq, stop, self.oracle.lookahead if is_ahead else 0, context)
        seq.computed, seq.is_busy = stop, True
        self.worker.copy(copies)
        self.worker.writes.append((seq, start, stop))
        judge_window(self.oracle, seq, start if num_over is None else min(start, num_over), context)

    def _exchange_filled(self, seq: ExpectedSequence, context: str) -> None:
        """Explain entries that an earlier step filled and that now name cached blocks of equal content."""
        for part in seq.parts:
            old, table = part.observed_table, self.explainer.table_of(part, context)
            num_old = min(len(old), len(table))
            if table[:num_old] != old[:num_old]:
                named = [*table[:num_old], *old[num_old:]].__getitem__
                self.explainer.run(operations.exchange_entries(self.state, part.slot, named), context)
            part.observed_table = old  # the rest of the change is explained by `extended`

    def op_append(self, gid: int) -> bool:
        """Every member of a running group gets slots for the tokens that were sampled for it."""
        self.step.enter(GROWING)
        group = self.groups[gid]
        if self.may_append(group):
            self.append_all(group)
        return True

    def may_append(self, group: Group) -> bool:
        """Whether the subject says that the group can get its slots; True for a subject that has no such question."""
        if not self.capabilities.has_admission_query:
            return True
        before, self.questions.question = self.explainer.observed, "can_append"
        can = self.call("total-calls", "can_append", group.id)
        if not isinstance(can, bool):
            check_answer("can_append", can, bool, Admission)
            can = can is Admission.OK
        self.oracle.require_unchanged(before, "can_append only asks")
        if not can:
            self.questions.judge_no(self.questions.growth_cost_max(group), GPU, 0, f"can_append({group.id})")
            self.reply.text, self.reply.is_refusal = "cannot append", True
            self.coverage["append refused"] += 1
        return can

    def append_all(self, group: Group) -> None:
        """Reserve the slots of every token of every member."""
        for seq in group.members:
            self.reserve(seq, len(seq.tokens))

    def op_fork(self, parent_id: int, child_id: int) -> bool:
        """A running sequence gets a child that shares every block."""
        if child_id in self.seqs:
            return False
        self.step.begin()
        self.step.landed.clear()
        parent = self.seqs[parent_id]
        child = parent.forked(child_id)
        self.call("total-calls", "fork", parent_id, child_id)
        self.seqs[child_id] = child
        parent.group.members.append(child)
        context = f"fork({parent_id}, {child_id})"
        self.oracle.observe(context, [child])
        self.explainer.forked(parent, child, context)
        if child.tables != parent.tables:
            sentence = "parent $expected, child $observed"
            raise Finding("frame-kept", sentence, call=context, expected=parent.tables, observed=child.tables)
        self.oracle.settle(context)
        return True
