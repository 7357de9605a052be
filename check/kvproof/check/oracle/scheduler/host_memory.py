"""Host memory behind a scheduler's own connector: the judge is the worker that copies to and from it.

The connector decides what is stored and loaded, and a step names the copies. A load begins when its step is launched. A
store begins when the next step is launched, before that one computes; a store that a step names in `flushes` begins and
ends before this step computes. From its beginning to its end a copy may read its source and write its target at any
moment. So meanwhile nobody else may write the source of a copy (`source-held`) or use its target (`one-writer`), and a
load must not read a slot whose store has not ended (`hit-written`). A worker executes the stores that it gets before a
step in their order; so a store may write the slot of an older one for which this step waits. When a load is over, its
blocks must hold what its sequence would have computed (`arrived-whole`): so a slot that was given to other content is
found.

The judge decides when a copy is over, in any order. A copy that began with a step is over at its completion at the
earliest; one that was flushed, at the completion of the step that flushed it.

Source: vLLM, `v1/kv_offload/base.py` (`OffloadingWorker`), `cpu/gpu_worker.py` beside it, where each copy starts after
the one before, and `offloading/worker.py` of its connector.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Pair
from kvproof.check.protocol.scheduler import ScheduledStep
from kvproof.spec.text import operations

LAUNCH, COMPLETE = "launch()", "complete()"


@dataclass
class HostCopy:
    """A copy that a step named. pairs: (source, target). seq: the sequence that loads; None of a store."""

    job: int
    pairs: Sequence[Pair]
    seq: int | None
    began_with: int = -1  # the number of the launch; -1: it has not begun
    has_ended: bool = False  # whether its bytes have moved: so it is with a flushed store that is not reported
    content: list[list[int]] = field(default_factory=list)  # of its sources, since it began

    @property
    def is_moving(self) -> bool:
        """Whether it may read and write now."""
        return self.began_with >= 0 and not self.has_ended


class HostMemory:
    """The slots of a connector, and the copies under way."""

    def __init__(self, worker: Worker, coverage: Counter[str]) -> None:
        self.worker, self.coverage = worker, coverage
        self.slots: dict[int, list[int]] = {}  # what was stored
        self.copies: dict[int, HostCopy] = {}  # under way, by job, in the order in which steps named them
        self.num_launched = self.num_completed = 0
        self._flushed: dict[int, int] = {}  # job -> the launch that waited for it

    def schedule(self, step: ScheduledStep) -> None:
        """A step names copies. Raises Finding if a job is named twice."""
        for load in step.loads:
            self._name(HostCopy(load.job, load.pairs, load.seq))
        for store in step.stores:
            self._name(HostCopy(store.job, store.pairs, None))
            self.coverage["store to host memory"] += 1

    def _name(self, copy: HostCopy) -> None:
        if copy.job in self.copies:
            raise Finding("one-writer", f"copy {copy.job} begins again while it is under way", call="schedule()")
        self.copies[copy.job] = copy

    def launch(self, step: ScheduledStep) -> None:
        """Begin the stores of earlier steps, end what the step flushes, begin its loads. Raises Finding."""
        named = {store.job for store in step.stores}
        for copy in self.copies.values():
            if copy.seq is None and copy.began_with < 0 and (copy.job not in named or copy.job in step.flushes):
                self._begin(copy, step.flushes)
        for job in step.flushes:
            flushed = self.copies.get(job)
            if flushed is not None and flushed.began_with >= 0:
                self._end(flushed)
                self._flushed[job] = self.num_launched
                self.coverage["store waited for"] += flushed.seq is None
        for load in step.loads:
            self._begin(self.copies[load.job], ())
        self.num_launched += 1

    def _begin(self, copy: HostCopy, flushed: Sequence[int]) -> None:
        """A copy begins; the step waits for those that are flushed. Raises Finding."""
        copy.began_with = self.num_launched
        others = [other for other in self.copies.values() if other.is_moving and other is not copy]
        sources, targets = {source for source, _ in copy.pairs}, {target for _, target in copy.pairs}
        if copy.seq is None:
            copy.content = [self.worker.slots[block][:] for block, _ in copy.pairs]
            for other in others:
                if other.seq is None and other.job in flushed:
                    continue
                used = (target for _, target in other.pairs) if other.seq is None else (slot for slot, _ in other.pairs)
                self._require_apart("one-writer", "slot", targets, used, copy, other)
            return
        for other in others:
            if other.seq is None:
                self._require_apart("hit-written", "slot", sources, (slot for _, slot in other.pairs), copy, other)
                self._require_apart("source-held", "block", targets, (block for block, _ in other.pairs), copy, other)
        for slot in sources:
            if slot not in self.slots:
                raise Finding(
                    "hit-written", f"{_name_of(copy)} reads slot {slot}, which was never written", call=LAUNCH
                )
        copy.content = [self.slots[slot] for slot, _ in copy.pairs]

    def _require_apart(
        self, property: str, noun: str, mine: set[int], used: Iterable[int], copy: HostCopy, other: HostCopy
    ) -> None:
        if both := mine.intersection(used):
            sentence = f"{_name_of(copy)} uses {noun} {min(both)}, which {_name_of(other)} still uses"
            raise Finding(property, sentence, call=LAUNCH)

    def executed(self, context: str) -> None:
        """The device has written blocks: none that a store still reads. Raises Finding."""
        for copy in self.copies.values():
            if copy.seq is None and copy.is_moving:
                for (block, _), content in zip(copy.pairs, copy.content, strict=True):
                    if self.worker.slots[block] != content:
                        sentence = f"block {block} is written while {_name_of(copy)} still reads it"
                        raise Finding("source-held", sentence, call=context, blocks=[block])

    def _end(self, copy: HostCopy) -> None:
        if not copy.has_ended and copy.seq is None:
            for (_, slot), content in zip(copy.pairs, copy.content, strict=True):
                self.slots[slot] = content
        copy.has_ended = True

    def ready(self) -> list[HostCopy]:
        """The copies that can be reported with the step that completes next, the oldest first."""
        return [copy for copy in self.copies.values() if 0 <= copy.began_with <= self.num_completed]

    def complete(self, places: Sequence[int]) -> list[HostCopy]:
        """A step completes: these of the copies that can be are over, and those that it flushed. Returns them."""
        ready = self.ready()
        over = [
            copy
            for place, copy in enumerate(ready)
            if place in places or self._flushed.get(copy.job, self.num_completed + 1) <= self.num_completed
        ]
        for copy in over:
            self._end(copy)
            del self.copies[copy.job]
            self._flushed.pop(copy.job, None)
        self.num_completed += 1
        return over

    def judge_load(self, copy: HostCopy, seq: ExpectedSequence) -> None:
        """The blocks of a sequence hold what it would have computed, in each KV group that its next tokens read.

        What only earlier tokens read may be loaded, or not. Raises Finding.
        """
        size, blocks = self.worker.block_size, [block for _, block in copy.pairs]
        first, last = seq.hit // size, -(-seq.computed // size)
        placed = {
            part.observed_table[index]: (part, index)
            for part in seq.parts
            for index in range(first, last)
            if part.observed_table[index] != NULL_BLOCK
        }
        num_done = min(seq.computed, len(seq.tokens) - 1)  # the last token is computed in any case
        needed = [
            block
            for block, (part, index) in placed.items()
            if index >= operations.first_entry_read(size, num_done, part.window)
        ]
        if len(blocks) != len({*blocks}) or not {*needed} <= {*blocks} <= {*placed}:
            raise Finding(
                "arrived-whole",
                "the load of $sequence writes blocks $observed; its table needs $expected",
                call=COMPLETE,
                expected=needed,
                observed=blocks,
                sequence=seq.name,
            )
        for content, (slot, block) in zip(copy.content, copy.pairs, strict=True):
            part, index = placed[block]
            if content != part.whole[index * size : (index + 1) * size]:
                raise Finding(
                    "arrived-whole",
                    f"the load of $sequence brings slot {slot} into block {block}, and the slot has other content than "
                    f"positions {index * size} to {(index + 1) * size - 1} of the sequence",
                    call=COMPLETE,
                    blocks=[block],
                    sequence=seq.name,
                )
        self.coverage["load from host memory"] += 1


def _name_of(copy: HostCopy) -> str:
    return f"store {copy.job}" if copy.seq is None else f"load {copy.job} of sequence {copy.seq}"
