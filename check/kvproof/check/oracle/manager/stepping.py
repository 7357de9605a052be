"""The step of the worker, and what happens between steps to the cache as a whole."""

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.oracle.manager.base import GROWING, Judge
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Pair, Scheduled
from kvproof.spec.text import operations
from kvproof.spec.text.state import GPU


class Stepping(Judge):
    """run, reset."""

    def op_run(self, tick: int) -> bool:
        """The step: the manager is told what is scheduled, the worker executes, and everyone reads back."""
        worker, explainer = self.worker, self.explainer
        if not worker.is_pending:
            return False
        self.now += tick
        lookahead = self.config.lookahead
        writes = worker.writes[:]
        step = [Scheduled(seq.id, stop - start, stop) for seq, start, stop in writes if not seq.is_encoder]
        self._call("total-calls", "step_scheduled", step, self.now)
        if explainer.order is not None:
            slots = [part.slot for seq, _, _ in writes if not seq.is_encoder for part in seq.parts]
            explainer.order.used(slots, self.now)
        other = worker.in_other_order(lookahead) if worker.order_may_matter() else None
        copies = worker.copies[:]
        worker.execute(lookahead)
        explainer.executed(writes)
        self._call("total-calls", "step_done", step)
        if self.capabilities.dedups_after_step:
            self._take_over([seq for seq, _, _ in writes if not seq.is_encoder])
        for seq in self.seqs.values():
            seq.is_busy = False
        self.preempted_in_step, self.phase = False, GROWING
        self._compare_memory(other, copies)
        return True

    def _take_over(self, seqs: list[ExpectedSequence]) -> None:
        """Blocks that these sequences filled in the step may have given way to cached ones."""
        self._observe("run", seqs)
        for seq in seqs:
            self.explainer.exchanged(seq, f"run: sequence {seq.id}")
        self._settle("run")

    def _compare_memory(self, other: Worker | None, copies: list[Pair]) -> None:
        """After a step every block holds what was written there, in the `other` order of its copies too."""
        memory, written = self.state.memory, self.state.num_written
        wrong = self.worker.wrong_blocks(memory, written)
        if wrong:
            raise self._read_back(wrong[0], self.worker.slots, "read-back", "")
        if other is not None:
            self.coverage["copies that touch each other"] += 1
            wrong = other.wrong_blocks(memory, written)
            if wrong:
                raise self._read_back(wrong[0], other.slots, "mapping-hazard-free", f"copies {copies} in reverse: ")
        if max(self.state.refcount) >= 3:
            self.coverage["three holders"] += 1
        if self.explainer.observed.free[GPU] == 0:
            self.coverage["pool full"] += 1

    def _read_back(self, block: int, slots: list[list[int]], property: str, prefix: str) -> Finding:
        """Who reads the wrong block, where, and what it finds there."""
        expected, found = self.state.memory[block], slots[block]
        slot = next(o for o in range(self.state.num_written[block]) if expected[o] != found[o])
        parts = [part for seq in self.seqs.values() for part in seq.parts if part.slot >= 0]
        reader = next((part for part in parts if self.state.position[part.slot][block] >= 0), None)
        where = f"block {block}, slot {slot}"
        if reader is None:
            who = f"the prefix cache holds {where} for {self.identities.describe(expected[slot])}"
            property = "cache-content" if property == "read-back" else property
        else:
            position = self.state.position[reader.slot][block] * self.config.block_size + slot
            who = f"{reader.name} reads position {position} ({where})"
        holds = {-1: "nothing was written there", -2: "there is junk of a lookahead slot"}.get(found[slot])
        text = holds or f"there is the KV of {self.identities.describe(found[slot])}"
        return Finding(property, f"{prefix}{who}: {text}")

    def op_reset(self) -> bool:
        """The prefix cache is forgotten; refused while any block is in use."""
        if not self.capabilities.reset or not self.config.caching or self.worker.is_pending:
            return False
        before = self.explainer.observed
        done = self._call("total-calls", "reset_cache")
        check_answer("reset_cache", done, bool)
        self.answer = "reset" if done else "refused"
        if not done:
            self._unchanged(before, "reset_cache was refused")
        self._judge_reset(done, "reset_cache")
        if not done:
            self.coverage["reset refused"] += 1
            return True
        self.explainer.run(operations.reset_cache(self.state), "reset_cache")
        self._observe("reset_cache")
        self._settle("reset_cache")
        self.coverage["reset"] += 1
        return True
