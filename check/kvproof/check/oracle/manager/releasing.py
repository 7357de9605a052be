"""Operations by which sequences give up their blocks: they end, or are preempted and wait again."""

from kvproof.check.oracle.expected import SWAPPED, WAITING, Group
from kvproof.check.oracle.manager.step import GROWING, StepJudge
from kvproof.check.oracle.oracle import Oracle


class ReleaseJudge:
    """Does the operations free and preempt."""

    def __init__(self, oracle: Oracle, groups: dict[int, Group], step: StepJudge) -> None:
        self.oracle, self.explainer, self.call, self.seqs = oracle, oracle.explainer, oracle.call, oracle.seqs
        self.groups, self.step = groups, step

    def op_free(self, seq_id: int) -> bool:
        """A sequence ends, in whatever state it is."""
        self.step.begin()
        seq = self.seqs[seq_id]
        if seq.status is not WAITING:  # a manager does not see a sequence that has no table go
            self.step.landed.clear()
        group, context = seq.group, f"free({seq_id})"
        self.call("total-calls", "free", seq_id)
        del self.seqs[seq_id]
        group.members.remove(seq)
        ended = [seq]
        if not group.members:
            del self.groups[group.id]
            if group.encoder:
                del self.seqs[group.encoder.id]
                ended.append(group.encoder)
        self.oracle.observe(context)
        for one in ended:
            if one.status is not WAITING:
                self.explainer.freed(one, context)
        self.oracle.settle(context)
        return True

    def op_preempt(self, gid: int) -> bool:
        """A running group of one sequence gives up every block and waits again, its tokens kept.

        A swapped group does so too, but for the table of its encoder, which stays on the host.
        """
        self.step.enter(GROWING)
        group, context = self.groups[gid], f"preempt({gid})"
        self.call("total-calls", "preempt", gid)
        is_swapped = group.members[0].status is SWAPPED
        ended = group.members[:] if is_swapped else group.all_seqs
        for seq in ended:
            seq.status, seq.computed, seq.hit, seq.num_prompt = WAITING, 0, 0, len(seq.tokens)
        self.step.has_preempted = True
        self.oracle.observe(context)
        for seq in ended:
            self.explainer.freed(seq, context)
        self.oracle.settle(context)
        self.oracle.coverage["preempted"] += 1
        return True
