"""Operations by which groups move to the other device, and back."""

from kvproof.check.oracle.expected import RUNNING, SWAPPED, Group, Status
from kvproof.check.oracle.manager.growing import GrowthJudge
from kvproof.check.oracle.manager.questions import LATER, OK, Questions
from kvproof.check.oracle.manager.step import GROWING, SWAPPING_IN, StepJudge
from kvproof.check.oracle.needed_blocks import num_blocks_needed
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.oracle.swaps import explain_swap
from kvproof.check.protocol.adapter_check import check_pairs
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Pair
from kvproof.spec.text.state import GPU, HOST


class SwapJudge:
    """Does the operations swap_out and swap_in."""

    def __init__(
        self, oracle: Oracle, groups: dict[int, Group], step: StepJudge, questions: Questions, growth: GrowthJudge
    ) -> None:
        self.oracle, self.explainer, self.worker, self.state = oracle, oracle.explainer, oracle.worker, oracle.state
        self.capabilities, self.coverage = oracle.capabilities, oracle.coverage
        self.call, self.reply = oracle.call, oracle.reply
        self.groups, self.step, self.questions, self.growth = groups, step, questions, growth

    def op_swap_out(self, gid: int) -> bool:
        """A running group moves to host blocks."""
        self.step.enter(GROWING)
        group = self.groups[gid]
        if self.questions.ask("can_swap_out", group) is not OK:
            self.questions.judge_no(self.questions.num_blocks_to_move(group), HOST, 0, f"can_swap_out({gid})")
            self.coverage["swap out refused"] += 1
            return True
        self.step.has_preempted = True
        self.worker.swap_out += self.swap(group, "swap_out", SWAPPED)
        return True

    def op_swap_in(self, gid: int) -> bool:
        """A swapped group moves back; if tokens were sampled for it, it gets their slots as well."""
        self.step.enter(SWAPPING_IN)
        group = self.groups[gid]
        answer = self.questions.ask("can_swap_in", group)
        if answer is not OK:
            self.coverage["swap in refused"] += 1
            needed = self.questions.num_blocks_to_move(group) + self.questions.growth_cost_max(group)
            if answer is LATER:
                self.questions.judge_later(f"can_swap_in({gid}) says LATER although nothing runs")
            elif self.capabilities.refusal_slack is not None:  # the watermark is kept for others, if at all
                num_held_back = 0 if self.capabilities.watermark_of_swap_ins else self.oracle.num_held_back
                num_most = max(needed, num_blocks_needed(self.oracle, group, self.oracle.lookahead))
                self.questions.judge_never(group, num_most, num_held_back, f"can_swap_in({gid})")
            refcount = self.state.refcount
            avoided = sum([not refcount[block] for block in self.step.landed])
            self.questions.judge_no(needed, GPU, self.oracle.num_held_back + avoided, f"can_swap_in({gid})")
            return True
        self._judge_watermark(group)
        moved = self.swap(group, "swap_in", RUNNING)
        self.worker.swap_in += moved
        self.step.landed.update([target for _, target in moved])
        if self.explainer.unused_in(self.state, GPU) <= 1:
            self.coverage["swap in while nearly full"] += 1
        if all(seq.num_unseen and len(seq.tokens) > seq.num_prompt for seq in group.members):
            self.growth.append_all(group)
        return True

    def _judge_watermark(self, group: Group) -> None:
        """The subject said OK to a swap-in: the watermark stays free, or nothing else runs that could need it."""
        may_wait, may_answer_ok = map(self.explainer.machine.function, ("may_wait", "may_answer_ok"))
        if not (
            self.capabilities.watermark_of_swap_ins
            and self.oracle.num_held_back
            and may_wait(self.state, self.explainer.num_prefixes)
        ):
            return
        needed, unused = self.questions.num_blocks_to_move(group), self.explainer.unused_in(self.state, GPU)
        if not may_answer_ok(needed, unused, self.oracle.num_held_back):
            raise Finding(
                "admission-sound",
                f"can_swap_in({group.id}) says OK, but needs $observed blocks of $expected free, and "
                f"{self.oracle.num_held_back} are held back by the watermark",
                expected=unused,
                observed=needed,
            )

    def swap(self, group: Group, name: str, status: Status) -> list[Pair]:
        """The call moves the group, which then has this status; the pairs that it emitted, with absolute ids."""
        context, pool = f"{name}({group.id})", HOST if status is SWAPPED else GPU
        try:
            pairs = self.call("admission-sound", name, group.id)
        except Finding as finding:
            self.questions.blame(finding, group.id, self.questions.num_blocks_to_move(group), pool)
            raise
        moving = group.all_seqs
        check_pairs(name, pairs, len(moving) * self.explainer.num_blocks)
        self.reply.text = ", ".join(f"{source} -> {target}" for source, target in pairs)
        for seq in moving:
            seq.status = status
        self.oracle.observe(context, moving)
        hits_in_step = self.capabilities.same_step_hits
        moved = explain_swap(self.explainer, moving, pairs, status is SWAPPED, context, hits_in_step)
        self.oracle.settle(context)
        self.coverage[name] += 1
        return moved
