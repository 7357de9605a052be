"""Operations by which blocks are given up: sequences end, or are preempted and wait again; the prefix cache is reset.

After a reset the records are judged that a manager still keeps when it has nothing any more.
"""

from typing import Any
from weakref import ref

from kvproof.check.oracle.expected import SWAPPED, WAITING, Group
from kvproof.check.oracle.manager.step import GROWING, StepJudge
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.spec.text import operations

# By the identity of the subject, and by configuration: how subjects compare, and whether they have a hash, is theirs.
RECORDS_OF_NEW: dict[int, tuple[ref[Any], dict[Config, int]]] = {}


class ReleaseJudge:
    """Does the operations free, preempt and fail."""

    def __init__(self, oracle: Oracle, groups: dict[int, Group], step: StepJudge) -> None:
        self.oracle, self.explainer, self.call, self.seqs = oracle, oracle.explainer, oracle.call, oracle.seqs
        self.groups, self.step = groups, step

    def op_free(self, seq_id: int) -> bool:
        """A sequence ends, in whatever state it is; perhaps before the step that was to compute it."""
        seq = self.seqs[seq_id]
        is_busy = seq.is_busy
        if not self.oracle.worker.is_pending:
            self.step.begin()
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
        if is_busy:
            self.step.leave(ended)
        self.oracle.observe(context)
        for one in ended:
            if one.status is not WAITING:
                self.explainer.freed(one, context)
        self.oracle.settle(context)
        if is_busy:
            self.step.left()
        return True

    def op_fail(self) -> bool:
        """The manager learns of the step, which fails: nothing is computed, and every group of it is over."""
        groups = dict.fromkeys(seq.group for seq, _, _ in self.oracle.worker.writes)
        self.call("total-calls", "step_scheduled", self.step.scheduled(), self.step.now)
        ended = [seq.id for group in groups for seq in group.members]
        for seq_id in ended:
            self.op_free(seq_id)
        self.oracle.reply.text = "fails"
        self.oracle.coverage["step failed"] += 1
        return True

    def op_preempt(self, gid: int) -> bool:
        """A running group of one sequence gives up every block and waits again, its tokens kept.

        A swapped group does so too, but for the table of its encoder, which stays on the host.
        """
        group, context = self.groups[gid], f"preempt({gid})"
        is_busy = group.members[0].is_busy
        if not is_busy:
            self.step.enter(GROWING)
        self.call("total-calls", "preempt", gid)
        is_swapped = group.members[0].status is SWAPPED
        ended = group.members[:] if is_swapped else group.all_seqs
        if is_busy:
            self.step.leave(ended)
        for seq in ended:
            seq.status, seq.computed, seq.hit, seq.num_prompt = WAITING, 0, 0, len(seq.tokens)
        self.step.has_preempted = True
        self.oracle.observe(context)
        for seq in ended:
            self.explainer.freed(seq, context)
        self.oracle.settle(context)
        if is_busy:
            self.step.left()
        self.oracle.coverage["preempted"] += 1
        return True


def records_of_new(subject: object) -> dict[Config, int]:
    """How many records new managers of this subject have, as far as known; kept as long as the subject lives."""
    number, forget = id(subject), RECORDS_OF_NEW.pop
    kept = RECORDS_OF_NEW.get(number)
    if kept is None:
        kept = RECORDS_OF_NEW[number] = ref(subject, lambda _: forget(number, None)), {}
    return kept[1]


class ResetJudge:
    """Judges the resets of one manager."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, can = oracle, oracle.capabilities
        self.can_reset = oracle.config.caching and can.reset
        self.judges_records = self.can_reset and can.records_kept is not None
        self._num_records_opened = self._records_of_new_manager() if self.judges_records else 0

    def op_reset(self) -> bool:
        """Reset the prefix cache; a manager refuses this while any block is in use."""
        oracle = self.oracle
        before = oracle.explainer.observed
        done = oracle.call("total-calls", "reset_cache")
        check_answer("reset_cache", done, bool)
        oracle.reply.text, oracle.reply.is_refusal = "reset" if done else "refused", not done
        if not done:
            oracle.require_unchanged(before, "reset_cache was refused")
        oracle.judge_reset(done, "reset_cache")
        if not done:
            oracle.coverage["reset refused"] += 1
            return True
        oracle.explainer.run(operations.reset_cache(oracle.state), "reset_cache")
        oracle.observe("reset_cache")
        oracle.settle("reset_cache")
        oracle.coverage["reset"] += 1
        if self.judges_records and not oracle.seqs:
            self._judge_records()
        return True

    def _records_of_new_manager(self) -> int:
        """The records that a manager of this configuration has when it is opened; counted once for each of them."""
        known, config = records_of_new(self.oracle.subject), self.oracle.config
        if config not in known:
            known[config] = self.oracle.call("total-calls", "num_records")
        return known[config]

    def _judge_records(self) -> None:
        """No sequence is known and the cache is empty: the manager keeps no more records than when it was opened."""
        num_records = self.oracle.call("total-calls", "num_records")
        check_answer("num_records", num_records, int)
        num_kept_max = self.oracle.capabilities.records_kept or 0
        expected = self._num_records_opened + num_kept_max
        if num_records > expected:
            raise Finding(
                "no-leak-at-rest",
                "nothing is cached and no request is known, but the manager keeps $observed records, and had "
                f"{self._num_records_opened} when it was opened; the subject declares that it keeps at most "
                f"{num_kept_max} more",
                call="reset_cache",
                expected=expected,
                observed=num_records,
            )
