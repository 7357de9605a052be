"""Loads that fail: which KV is there, what a step computes in vain, and which sequences begin again.

A load that lasts may be reported to fail at any completion until it is over. Then its sequence goes on from the first
block that failed, or gives everything up and begins again.

A load within a step fails when the step is launched, and the scheduler learns of it when the step is complete.
Meanwhile others may hit its blocks, and the next step may be scheduled. Whatever reads a block that is missing is
computed in vain: it writes nothing that counts, and the tokens sampled from it are dropped when the failure is
reported. Later steps must not read what is missing; that is judged by the rules, as always. With asynchronous steps a
token that is dropped is sampled again with the same value, since the specification may know it already.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.scheduler.base import COMPLETE, SCHEDULE, ExpectedRequest, SchedulerState, UnderWay
from kvproof.check.protocol.manager import NULL_BLOCK
from kvproof.check.protocol.scheduler import FAILED, Load, ScheduledStep
from kvproof.spec.text.loads import FAIL, is_in_vain, must_end, num_there

Failures = Sequence[tuple[int, Sequence[int]]]  # sequences, and places of the blocks that fail; none: all of them
NUM_REPORTED_MAX = 6  # loads of which it is reported again that they are over
Write = tuple[ExpectedSequence, int, int]


class BlocksOfLoad(NamedTuple):
    """A load under way: its positions, and the blocks that it fills, in all KV groups, for each block of tokens."""

    start: int
    stop: int
    blocks: list[list[int]]


class Unfit(NamedTuple):
    """A load of KV whose sequence does not have what lies before: it counts once that is computed."""

    start: int
    stop: int
    table: list[int]


class FailedLoads:
    """The failures of loads of one scheduler."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self.scheduler, self.config, self.explainer = scheduler, scheduler.config, scheduler.explainer
        self.seqs, self.worker, self.coverage = scheduler.seqs, scheduler.worker, scheduler.coverage
        self.loads: dict[int, BlocksOfLoad] = {}  # by sequence
        self.there: dict[int, int] = {}  # by sequence whose load failed in part: the tokens that have KV
        self.reported: list[int] = []  # the newest loads that were reported to be over
        self.may_begin_again = set[int]()  # sequences whose failed load is over, until they are scheduled
        self._unfit: dict[int, Unfit] = {}

    def begin(self, seq: ExpectedSequence, load: Load) -> None:
        """A load begins."""
        size = self.explainer.block_size
        places = range(load.hit // size, self.explainer.blocks_for(load.stop))
        tables = [part.observed_table for part in seq.parts]
        blocks = [[table[at] for table in tables if at < len(table) and table[at] != NULL_BLOCK] for at in places]
        self.loads[seq.id] = BlocksOfLoad(load.hit, load.stop, blocks)

    def failed(self, failures: Failures, loading: Collection[int]) -> dict[int, list[int]]:
        """Which blocks of these loads fail, by sequence. After `stop` none fails, so that all is over some time."""
        found: dict[int, list[int]] = {}
        if not self.config.load_failures or self.scheduler.last_step is not None:
            return found
        for seq_id, given in failures:
            load = self.loads.get(seq_id)
            if seq_id not in loading or load is None:
                continue
            places = sorted({place for place in given if place < len(load.blocks)})
            if given and not places:
                continue
            found[seq_id] = [block for place in places for block in load.blocks[place]]
            keeps_some = bool(places) and len(self.config.kv_groups) == 1  # else a window may lack what lies before
            num_whole = places[0] if keeps_some else 0
            there = num_there(load.start, load.stop, num_whole, self.explainer.block_size)
            self.there[seq_id] = min(there, self.there.get(seq_id, there))
            self.coverage["load failed"] += 1
        return found

    # Loads that last -------------------------------------------------------------------------------------------------

    def over(self, seq_id: int, seq: ExpectedSequence | None) -> None:
        """A load is over: from now on its sequence, if it is still there, has the KV up to the first failed block."""
        del self.loads[seq_id]
        self.reported = [*self.reported[1 - NUM_REPORTED_MAX :], seq_id]
        there = self.there.pop(seq_id, None)
        if there is not None and seq is not None:
            seq.computed = there
            self.may_begin_again.add(seq_id)

    def repeated(self, seq_ids: Sequence[int]) -> list[int]:
        """The sequences of which it may be reported again that their load is over: no other one is under way."""
        if not self.config.repeated_reports:
            return []
        known = [seq_id for seq_id in dict.fromkeys(seq_ids) if seq_id in self.reported]
        again = [seq_id for seq_id in known if seq_id not in self.scheduler.loading]
        for seq_id in again:
            self.coverage["load reported again" + ("" if seq_id in self.seqs else " when its request is gone")] += 1
        return again

    def begin_again(self, step: ScheduledStep) -> bool:
        """Explain sequences whose load failed and that gave all up; they wait, or this step lets them in once more."""
        starts = {chunk.seq: chunk.start for chunk in step.chunks}
        loading, has_moved = {load.seq for load in step.loads}, False
        for seq_id in [*self.may_begin_again]:
            seq = self.seqs.get(seq_id)
            is_gone = seq is None or seq.slot < 0
            if seq is not None and not is_gone and not self._goes_on(seq, starts.get(seq_id, 0), seq_id in loading):
                self.explainer.freed(seq, SCHEDULE)
                seq.status, seq.computed, seq.hit, is_gone, has_moved = Status.WAITING, 0, 0, True, True
                self.scheduler.without_slot.discard(seq_id)
                self.coverage["began again after a failed load"] += 1
            if is_gone or seq_id in starts:
                self.may_begin_again.discard(seq_id)
        return has_moved

    def _goes_on(self, seq: ExpectedSequence, start: int, is_loading: bool) -> bool:
        """Whether the sequence keeps its tables, and computes from where its KV ends, or from before."""
        shown = self.explainer.observed.tables.get(seq.id) or []
        if is_loading or start > seq.computed or len(shown) != len(seq.parts):
            return False
        pairs = [
            (old, new) for part, table in zip(seq.parts, shown, strict=True) for old, new in self._both(part, table)
        ]
        return bool(pairs) and all(new in (old, NULL_BLOCK) for old, new in pairs)

    @staticmethod
    def _both(part: ExpectedSequence, table: list[int]) -> Iterable[tuple[int, int]]:
        return zip(part.observed_table, [*table, *[-2] * len(part.observed_table)], strict=False)

    # Loads within a step ---------------------------------------------------------------------------------------------

    def launch(self, under: UnderWay, failures: Failures) -> None:
        """The loads of a step happen, and may fail; of what is to be written, leave what is not in vain."""
        if not (self.config.loads_in_step and self.config.load_failures):
            return
        loads = {load.seq for load in under.step.loads}
        under.failed = self.failed(failures, loads & {seq.id for seq, _, _ in self.worker.writes})
        writes, failing = list[Write](), set(under.failed)
        for seq, start, stop in self.worker.writes:
            writes += self._late(seq, start)
            missing, cause = self._first_missing(seq, start, under)
            if cause is not None and is_in_vain(start, missing):
                if seq.id in loads and (start, stop) == self.loads[seq.id][:2]:
                    self._unfit[seq.id] = Unfit(start, stop, seq.observed_table[:])
                self._in_vain(under, seq, (start, stop), cause, missing)
                failing.discard(seq.id)
            elif seq.id in failing:
                failing.discard(seq.id)
                there = self.there.pop(seq.id)
                writes += [(seq, start, there)] if there > start else []
                self._in_vain(under, seq, (there, stop), under, there)
            else:
                writes.append((seq, start, stop))
        self.worker.writes = writes

    def _late(self, seq: ExpectedSequence, start: int) -> list[Write]:
        """The loaded KV of a sequence that can be read now, since what lies before is computed."""
        unfit = self._unfit.get(seq.id)
        if unfit is None or start <= unfit.start:
            return []
        del self._unfit[seq.id]
        is_there = seq.observed_table[: len(unfit.table)] == unfit.table
        return [(seq, unfit.start, min(start, unfit.stop))] if is_there else []

    def _first_missing(self, seq: ExpectedSequence, start: int, under: UnderWay) -> tuple[int, UnderWay | None]:
        """The first position before `start` whose KV is missing, and the step whose load failed; else no step."""
        size = self.explainer.block_size
        steps = [*self.scheduler.under_way, under]
        for index in range(self.explainer.blocks_for(start)):
            for part in seq.parts:
                block = part.observed_table[index] if index < len(part.observed_table) else NULL_BLOCK
                for step in steps:
                    if block in step.missing:
                        return index * size, step.missing[block]
        return start, None

    def _in_vain(
        self, under: UnderWay, seq: ExpectedSequence, span: tuple[int, int], cause: UnderWay, there: int
    ) -> None:
        """A step computes these positions in vain, because of the failure of a step."""
        size = self.explainer.block_size
        for part in seq.parts:
            for block in part.observed_table[span[0] // size : self.explainer.blocks_for(span[1])]:
                if block != NULL_BLOCK:
                    under.missing[block] = cause
        if seq.id not in under.in_vain:
            self.coverage["computed in vain"] += 1
        under.in_vain.setdefault(seq.id, (cause, there))

    def sampled_in_vain(
        self, under: UnderWay, sampling: Sequence[ExpectedSequence], tokens: Sequence[int]
    ) -> list[ExpectedSequence]:
        """The sequences that sample, without those of which the step computed something in vain."""
        under.dropped = {seq.id: tokens[0] for seq in sampling if seq.id in under.in_vain}
        return [seq for seq in sampling if seq.id not in under.dropped]

    def take_back(self, under: UnderWay) -> list[ExpectedRequest]:
        """The failures of a step are reported: drop what was sampled in vain, and return the requests."""
        readers = list[ExpectedRequest]()
        for step in [*self.scheduler.under_way[::-1], under]:
            for seq_id, (cause, there) in step.in_vain.items():
                seq = self.seqs.get(seq_id)
                if cause is not under or seq is None:
                    continue
                if seq_id in step.sampled:  # with asynchronous steps
                    step.dropped[seq_id] = step.sampled.pop(seq_id)
                    step.over.discard(seq_id)
                    self.scheduler.to_sample_again.setdefault(seq_id, []).append(step.dropped[seq_id])
                    seq.drop_last_token(self.scheduler.oracle.identities)
                seq.computed = min(seq.computed, there)
                request = self.scheduler.requests[seq.group.id]
                if request not in readers:
                    readers.append(request)
            step.missing = {block: cause for block, cause in step.missing.items() if cause is not under}
        for load in under.step.loads:
            self.loads.pop(load.seq, None)
        return readers

    # Requests that end -----------------------------------------------------------------------------------------------

    def ended(self, failed: Iterable[int], readers: Iterable[ExpectedRequest]) -> list[ExpectedSequence]:
        """The sequences whose requests end since a load failed: they, and those that read of it, if they are reported.

        Raises Finding if a request is reported to have ended that may not, or is not reported.
        """
        if not must_end(self.config.load_failures == FAIL, True):
            return []
        scheduler, reads = self.scheduler, {one.id: one for one in readers}
        loaders = [scheduler.requests[seq.group.id] for i in failed if (seq := self.seqs.get(i)) is not None]
        lost = [one for one in loaders if not one.is_doomed]
        for request in (*loaders, *reads.values()):  # its user may have left meanwhile
            if request.id in scheduler.ending:
                scheduler.ending[request.id] = (*scheduler.ending[request.id], FAILED)
        scheduler.ending |= {one.id: (FAILED,) for one in lost}
        may_end = {i: one for i, one in reads.items() if one not in lost and not one.is_doomed}
        reported = scheduler.judge_ends(COMPLETE, dict.fromkeys(may_end, (FAILED,)))
        lost += [may_end[i] for i in reported if i in may_end]
        return [seq for request in lost for seq in request.members]
