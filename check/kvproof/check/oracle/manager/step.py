"""The step of the worker: the operations that prepare it come in a fixed order, and `run` executes it."""

from kvproof.check.oracle.computed import explain_step
from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.memory import compare_memory
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Scheduled

GROWING, SWAPPING_IN, ADMITTING = 0, 1, 2  # phases of a step, in the order that `ordered_steps` prescribes


class StepJudge:
    """Prepares and runs the steps of one manager.

    phase: of the step that is prepared. has_preempted: whether a group gave up or swapped its blocks in it. landed:
    targets of swap-ins; if they are free again, the next swap-in must avoid them. loads: of the step, by sequence and
    first position. loading: the blocks that it loads without computing what lies behind: nobody may hit them yet.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.explainer, self.worker = oracle, oracle.explainer, oracle.worker
        self.config, self.capabilities, self.call = oracle.config, oracle.capabilities, oracle.call
        self.now = 0
        self.phase, self.has_preempted = GROWING, False
        self.landed: set[int] = set()
        self.loads: set[tuple[int, int]] = set()
        self.loading: set[int] = set()

    def enter(self, phase: int) -> None:
        """An operation of that phase comes: operations of earlier phases must wait for the next step."""
        if self.capabilities.ordered_steps:
            self.phase = phase

    def begin(self) -> None:
        """No step is prepared; the next operation of a step begins a new one."""
        self.has_preempted, self.phase = False, GROWING

    @property
    def may_be_lost(self) -> bool:
        """Whether sequences may leave the step that is prepared: it moves no blocks, which others may count on."""
        return not (self.worker.copies or self.worker.swap_in or self.worker.swap_out)

    def leave(self, seqs: list[ExpectedSequence]) -> None:
        """These sequences leave the step that is prepared: it will compute nothing of them."""
        worker, order = self.worker, self.explainer.order
        worker.writes = [write for write in worker.writes if write[0] not in seqs]
        if order is not None:
            order.perhaps_used([part.slot for seq in seqs for part in seq.parts])
        for seq in seqs:
            seq.is_busy = False

    def left(self) -> None:
        """Those that left the step have given up their blocks."""
        worker, refcount = self.worker, self.oracle.state.refcount
        worker.fresh = [block for block in worker.fresh if refcount[block]]
        self.oracle.coverage["released before its step"] += 1
        if not worker.is_pending:
            self.begin()

    def scheduled(self) -> list[Scheduled]:
        """The step, as the manager learns of it."""
        return [Scheduled(seq.id, stop - start, stop) for seq, start, stop in self.worker.writes if not seq.is_encoder]

    def op_run(self, tick: int) -> bool:
        """The step: the manager learns what is scheduled, the worker executes it, and every reader reads back."""
        oracle, worker, explainer = self.oracle, self.worker, self.explainer
        self.now += tick
        lookahead = oracle.lookahead
        writes = worker.writes[:]
        step = self.scheduled()
        self.call("total-calls", "step_scheduled", step, self.now)
        if explainer.order is not None:
            slots = [part.slot for seq, _, _ in writes if not seq.is_encoder for part in seq.parts]
            explainer.order.used(slots, self.now)
        if lookahead and self.capabilities.owns_lookahead:
            self._judge_lookahead(writes)
        others = worker.in_other_orders(lookahead)
        worker.execute(lookahead)
        explain_step(explainer, writes, self.loads)
        self.loads.clear()
        self.loading.clear()
        if self.config.prefixes:
            oracle.prefixes.computed()
        if step:  # a manager does not learn of a step that computes nothing
            self.landed.clear()
        self.call("total-calls", "step_done", step)
        if self.capabilities.dedups_after_step:
            self._explain_exchanges([seq for seq, _, _ in writes if not seq.is_encoder])
        for seq in oracle.seqs.values():
            seq.is_busy = False
        self.begin()
        compare_memory(oracle, others)
        return True

    def _judge_lookahead(self, writes: list[tuple[ExpectedSequence, int, int]]) -> None:
        """Two sequences that decode in one step keep their drafts in different blocks: each reads its own.

        Of a group that was just admitted, one sequence computes the prompt; the others have nothing to do in that step.
        """
        size, owners = self.config.block_size, dict[int, ExpectedSequence]()
        for seq, start, stop in writes:
            if seq.is_encoder or start == stop or start < seq.num_prompt:
                continue
            last = self.explainer.blocks_for(stop + self.oracle.lookahead)
            for part in seq.parts:
                for block in part.observed_table[stop // size : last]:
                    owner = owners.setdefault(block, seq)
                    if block != NULL_BLOCK and owner is not seq:
                        raise Finding(
                            "exclusive-writer",
                            f"$sequence and sequence {owner.id} both keep the drafts of this step in block {block}",
                            call="run",
                            blocks=[block],
                            sequence=part.name,
                        )

    def _explain_exchanges(self, seqs: list[ExpectedSequence]) -> None:
        """Explain blocks that the step filled and that the manager replaced by cached ones of equal content."""
        self.oracle.observe("run", seqs)
        for seq in seqs:
            self.explainer.exchanged(seq, f"run: sequence {seq.id}")
        self.oracle.settle("run")
