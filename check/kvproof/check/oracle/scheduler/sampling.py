"""Which sequences of a step get a token, and which are over with it."""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.scheduler.base import SchedulerState, UnderWay
from kvproof.check.protocol.scheduler import ScheduledStep


class Sampling:
    """Samples for the steps of one scheduler."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self.scheduler = scheduler

    def of(self, step: ScheduledStep) -> list[ExpectedSequence]:
        """The sequences that the step computes to the end of their tokens."""
        seqs = [(seq, chunk.stop) for chunk in step.chunks if (seq := self.scheduler.seqs.get(chunk.seq))]
        return [seq for seq, stop in seqs if self._samples(seq, stop)]

    def sample(self, under: UnderWay, seqs: Sequence[ExpectedSequence], tokens: Sequence[int]) -> None:
        for index, seq in enumerate(seqs):
            if not any(
                seq.id in earlier.over for earlier in self.scheduler.under_way
            ):  # otherwise its result is not used
                under.sampled[seq.id] = tokens[index % len(tokens)]
                seq.grow(self.scheduler.oracle.identities, under.sampled[seq.id])
                if self._is_over(seq):
                    under.over.add(seq.id)

    def is_doomed(self, seq: ExpectedSequence) -> bool:
        """Whether the request of the sequence is over."""
        return self.scheduler.requests[seq.group.id].is_doomed

    def _samples(self, seq: ExpectedSequence, stop: int) -> bool:
        return stop == len(seq.tokens) and not self.is_doomed(seq)

    def _is_over(self, seq: ExpectedSequence) -> bool:
        request = self.scheduler.requests[seq.group.id]
        return request.num_left(seq) <= 0 or len(seq.tokens) >= self.scheduler.config.max_model_len
