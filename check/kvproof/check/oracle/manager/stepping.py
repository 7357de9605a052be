"""The step of the worker, and the reset of the whole cache between steps."""

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.manager.base import GROWING, ManagerBase
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.manager import Scheduled
from kvproof.spec.text import operations


class Stepping(ManagerBase):
    """The operations run and reset."""

    def op_run(self, tick: int) -> bool:
        """The step: the manager learns what is scheduled, the worker executes it, and every reader reads back."""
        worker, explainer = self.worker, self.explainer
        self.now += tick
        lookahead = self.config.lookahead
        writes = worker.writes[:]
        step = [Scheduled(seq.id, stop - start, stop) for seq, start, stop in writes if not seq.is_encoder]
        self.call("total-calls", "step_scheduled", step, self.now)
        if explainer.order is not None:
            slots = [part.slot for seq, _, _ in writes if not seq.is_encoder for part in seq.parts]
            explainer.order.used(slots, self.now)
        other = worker.in_other_order(lookahead) if worker.order_may_matter() else None
        copies = worker.copies[:]
        worker.execute(lookahead)
        explainer.executed(writes)
        self.call("total-calls", "step_done", step)
        if self.capabilities.dedups_after_step:
            self._explain_exchanges([seq for seq, _, _ in writes if not seq.is_encoder])
        for seq in self.seqs.values():
            seq.is_busy = False
        self.preempted_in_step, self.phase = False, GROWING
        self.compare_memory(other, copies)
        return True

    def _explain_exchanges(self, seqs: list[ExpectedSequence]) -> None:
        """Explain blocks that the step filled and that the manager replaced by cached ones of equal content."""
        self.observe("run", seqs)
        for seq in seqs:
            self.explainer.exchanged(seq, f"run: sequence {seq.id}")
        self.settle("run")

    def op_reset(self) -> bool:
        """Reset the prefix cache; a manager refuses this while any block is in use."""
        before = self.explainer.observed
        done = self.call("total-calls", "reset_cache")
        check_answer("reset_cache", done, bool)
        self.answer = "reset" if done else "refused"
        if not done:
            self.require_unchanged(before, "reset_cache was refused")
        self.judge_reset(done, "reset_cache")
        if not done:
            self.coverage["reset refused"] += 1
            return True
        self.explainer.run(operations.reset_cache(self.state), "reset_cache")
        self.observe("reset_cache")
        self.settle("reset_cache")
        self.coverage["reset"] += 1
        return True
