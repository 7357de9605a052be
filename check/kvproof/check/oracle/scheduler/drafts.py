"""The draft model of a scheduler that verifies drafts: what it proposes, and which of these tokens are accepted.

A draft model guesses the next tokens of a sequence. The next step verifies them: it computes them behind the newest
token. Drafts up to the first wrong one are accepted, and the model samples one token after them. The KV of the others
is junk, in slots that a later step writes again.

The judge is both models. With each proposal it decides how many of its tokens are right. So it is known, when a step is
scheduled, how it will end: the accepted drafts are tokens of the sequence from then on, and the step computes them as
it computes tokens that were known before; a rejected one takes a slot beyond the tokens, as lookahead does. The subject
learns this when the step is complete.

A step may verify the first ones of the drafts that were proposed. They are void once the sequence has a newer token;
until then they may be verified, also after a preemption. An engine may fill a batch with drafts that nobody proposed
(`PADDING`), which are rejected. A sequence whose last token is accepted takes no further one, and the drafts after it
are cut off.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.scheduler.base import SCHEDULE, SchedulerState
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import PADDING, Chunk, ScheduledStep

Drafts = tuple[int, Sequence[int], int]  # of a sequence: tokens, and how many of them are right


class Proposal(NamedTuple):
    """Drafts for the positions behind the newest token of a sequence. num_right: the first ones, which are accepted."""

    tokens: list[int]
    num_right: int


class DraftModel:
    """What is proposed for the sequences of one scheduler, and what the step under way verifies of it."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self.scheduler = scheduler
        self._proposed: dict[int, Proposal] = {}  # by sequence
        self._accepted: dict[int, list[int]] = {}  # by sequence: of the drafts that the step under way verifies

    def verified(self, step: ScheduledStep) -> ScheduledStep:
        """The step without the drafts that it rejects; those that it accepts are tokens of their sequences now.

        Raises Finding if it verifies what is no draft of the sequence, or not behind its newest token.
        """
        self._accepted.clear()
        self.scheduler.num_rejected.clear()
        drafts = dict(step.drafts)
        chunks = [self._verify(chunk, drafts.pop(chunk.seq)) if chunk.seq in drafts else chunk for chunk in step.chunks]
        for seq_id in drafts:
            sentence = "a step verifies drafts of $sequence, and computes no token of it"
            raise Finding("read-back", sentence, call=SCHEDULE, sequence=f"sequence {seq_id}")
        return step._replace(chunks=chunks)

    def _verify(self, chunk: Chunk, drafts: Sequence[int]) -> Chunk:
        seq = self.scheduler.seqs.get(chunk.seq)
        if seq is None:
            return chunk  # that it is over is a finding about its chunk
        num_known = len(seq.tokens)
        if chunk.stop != num_known + len(drafts):
            raise Finding(
                "read-back",
                f"a step computes $sequence up to position {chunk.stop - 1} and verifies {len(drafts)} drafts, which "
                "end before position $observed; its tokens end before position $expected",
                call=SCHEDULE,
                expected=num_known,
                observed=chunk.stop - len(drafts),
                sequence=seq.name,
            )
        proposed = self._proposed.get(seq.id, Proposal([], 0))
        is_padding = all(token == PADDING for token in drafts)
        if not is_padding and list(drafts) != proposed.tokens[: len(drafts)]:
            sentence = "a step verifies $observed as drafts of $sequence, for which $expected was proposed"
            raise Finding(
                "read-back",
                sentence,
                call=SCHEDULE,
                expected=proposed.tokens,
                observed=list(drafts),
                sequence=seq.name,
            )
        num_right = 0 if is_padding else min(proposed.num_right, len(drafts))
        num_kept = min(num_right, self._room(seq))
        seq.grow_all(self.scheduler.oracle.identities, drafts[:num_kept])
        self._accepted[seq.id] = list(drafts[:num_right])
        self.scheduler.num_rejected[seq.id] = len(drafts) - num_kept
        coverage = self.scheduler.coverage
        coverage["draft accepted"] += num_right
        coverage["draft rejected"] += len(drafts) - num_right
        coverage["drafts cut off"] += num_right - num_kept
        return chunk._replace(stop=num_known + num_kept)

    def _room(self, seq: ExpectedSequence) -> int:
        """How many tokens the sequence may still get."""
        num_left = self.scheduler.requests[seq.group.id].num_left(seq)
        return max(0, min(num_left, self.scheduler.config.max_model_len - len(seq.tokens)))

    def report(self, seqs: Iterable[int]) -> None:
        """Tell the subject which drafts of these sequences are accepted; the drafts that were proposed are void."""
        accepted = {seq_id: self._accepted.get(seq_id, []) for seq_id in seqs}
        self.scheduler.call("total-calls", "accepted", accepted)
        for seq_id in accepted:
            self._proposed.pop(seq_id, None)

    def propose(self, drafts: Iterable[Drafts], seqs: set[int]) -> None:
        """Propose these (sequence, tokens, number of right ones), of the sequences that go on."""
        most = self.scheduler.config.speculative_tokens
        self._proposed = {i: proposal for i, proposal in self._proposed.items() if i in self.scheduler.seqs}
        for seq_id, tokens, num_right in drafts:
            if seq_id in seqs and tokens:
                self._proposed[seq_id] = Proposal(list(tokens[:most]), num_right)
        proposed = {i: self._proposed[i].tokens[:] if i in self._proposed else [] for i in sorted(seqs)}
        self.scheduler.call("total-calls", "propose", proposed)
