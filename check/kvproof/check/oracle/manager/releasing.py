"""Operations by which sequences give up their blocks, or move to the other device."""

from kvproof.check.oracle.expected import RUNNING, SWAPPED, WAITING, Group, Status
from kvproof.check.oracle.manager.base import GROWING, LATER, OK, SWAPPING_IN
from kvproof.check.oracle.manager.growing import Growing
from kvproof.check.protocol.adapter_check import check_pairs
from kvproof.check.protocol.finding import Finding
from kvproof.spec.text.state import GPU, HOST


class Releasing(Growing):
    """The operations free, preempt, swap_out and swap_in."""

    def op_free(self, seq_id: int) -> bool:
        """A sequence ends, in whatever state it is."""
        self._begin_step()
        seq = self.seqs[seq_id]
        if seq.status is not WAITING:  # a manager does not see a sequence that has no table go
            self.landed.clear()
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
        self.observe(context)
        for one in ended:
            if one.status is not WAITING:
                self.explainer.freed(one, context)
        self.settle(context)
        return True

    def op_preempt(self, gid: int) -> bool:
        """A running group of one sequence gives up every block and waits again, its tokens kept.

        A swapped group does so too, but for the table of its encoder, which stays on the host.
        """
        self._enter(GROWING)
        group, context = self.groups[gid], f"preempt({gid})"
        self.call("total-calls", "preempt", gid)
        is_swapped = group.members[0].status is SWAPPED
        ended = group.members[:] if is_swapped else group.all_seqs
        for seq in ended:
            seq.status, seq.computed, seq.hit, seq.num_prompt = WAITING, 0, 0, len(seq.tokens)
        self.preempted_in_step = True
        self.observe(context)
        for seq in ended:
            self.explainer.freed(seq, context)
        self.settle(context)
        self.coverage["preempted"] += 1
        return True

    # Operations: swap -----------------------------------------------------------------------------------------------

    def op_swap_out(self, gid: int) -> bool:
        """A running group moves to host blocks."""
        self._enter(GROWING)
        group = self.groups[gid]
        if self.ask("can_swap_out", group) is not OK:
            self.judge_no(self.num_blocks_to_move(group), HOST, 0, f"can_swap_out({gid})")
            self.coverage["swap out refused"] += 1
            return True
        self.preempted_in_step = True
        self.worker.swap_out += self._swap(group, "swap_out", SWAPPED)
        return True

    def op_swap_in(self, gid: int) -> bool:
        """A swapped group moves back; if tokens were sampled for it, it gets their slots as well."""
        self._enter(SWAPPING_IN)
        group = self.groups[gid]
        answer = self.ask("can_swap_in", group)
        if answer is not OK:
            self.coverage["swap in refused"] += 1
            if answer is LATER:
                self.judge_later(f"can_swap_in({gid}) says LATER although nothing runs")
            refcount = self.state.refcount
            avoided = sum([not refcount[block] for block in self.landed])
            needed = self.num_blocks_to_move(group) + self.growth_cost_max(group)
            self.judge_no(needed, GPU, self.num_held_back + avoided, f"can_swap_in({gid})")
            return True
        self._judge_watermark(group)
        moved = self._swap(group, "swap_in", RUNNING)
        self.worker.swap_in += moved
        self.landed.update([target for _, target in moved])
        if self.explainer.unused_in(self.state, GPU) <= 1:
            self.coverage["swap in while nearly full"] += 1
        if all(seq.num_unseen and len(seq.tokens) > seq.num_prompt for seq in group.members):
            self._append_all(group)
        return True

    def _judge_watermark(self, group: Group) -> None:
        """The subject said OK to a swap-in: the watermark stays free, or nothing else runs that could need it."""
        may_wait, may_answer_ok = map(self.explainer.machine.function, ("may_wait", "may_answer_ok"))
        if not (
            self.capabilities.watermark_of_swap_ins
            and self.num_held_back
            and may_wait(self.state, self.explainer.num_prefixes)
        ):
            return
        needed, unused = self.num_blocks_to_move(group), self.explainer.unused_in(self.state, GPU)
        if not may_answer_ok(needed, unused, self.num_held_back):
            raise Finding(
                "admission-sound",
                f"can_swap_in({group.id}) says OK, but needs $observed blocks of $expected free, and "
                f"{self.num_held_back} are held back by the watermark",
                expected=unused,
                observed=needed,
            )

    def _swap(self, group: Group, name: str, status: Status) -> list[tuple[int, int]]:
        context = f"{name}({group.id})"
        try:
            pairs = self.call("admission-sound", name, group.id)
        except Finding as finding:
            self.blame(finding, group.id, self.num_blocks_to_move(group), HOST if name == "swap_out" else GPU)
            raise
        check_pairs(name, pairs)
        self.answer = ", ".join(f"{source} -> {target}" for source, target in pairs)
        moving = group.all_seqs
        for seq in moving:
            seq.status = status
        self.observe(context, moving)
        hits_in_step = self.capabilities.same_step_hits
        moved = self.explainer.swapped(moving, pairs, status is SWAPPED, context, hits_in_step)
        self.settle(context)
        self.coverage[name] += 1
        return moved
