"""The draft model of a scheduler that verifies drafts: what it proposes, and which of these tokens are accepted.

A draft model guesses the next tokens of a sequence. The next step verifies them: it computes them behind the newest
token. Drafts up to the first wrong one are accepted, and the model samples one token after them. The KV of the others
is junk, in slots that a later step writes again.

The judge is both models. With each proposal it decides how many of its tokens are right. So it is known, when a step is
scheduled, how it will end: the accepted drafts are tokens of the sequence from then on, and the step computes them as
it computes tokens that were known before; a rejected one takes a slot beyond the tokens, as lookahead does. The subject
learns this when the step is complete.

A model guesses for each sequence of a step, also where the step ends within the prompt. Such drafts mean nothing, and
no step may verify them.

A step may verify the first ones of the drafts that were proposed. They are void once the sequence has a newer token;
until then they may be verified, also after a preemption. An engine may fill a batch with drafts that nobody proposed
(`PADDING`), which are rejected. A sequence whose last token is accepted takes no further one, and the drafts after it
are cut off.

With asynchronous steps the drafts are on the device: they are proposed when a step is launched, and the next step
verifies them without their values (`PADDING` stands for each). It is scheduled as if all drafts of the steps under way
were accepted, so its positions are too large by those that are rejected.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.scheduler.base import SCHEDULE, SchedulerState
from kvproof.check.protocol.adapter_check import short
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.scheduler import PADDING, Chunk, ScheduledStep

Drafts = tuple[int, Sequence[int], int]  # of a sequence: tokens, and how many of them are right


class Proposal(NamedTuple):
    """Drafts for the positions behind the newest token of a sequence. num_right: the first ones, which are accepted."""

    tokens: list[int]
    num_right: int


def require_drafts(drafts: Any) -> None:
    """Raise AdapterError unless these are sequences, each with the drafts that a step verifies."""
    if not isinstance(drafts, (list, tuple)) or not all(map(_is_drafts, drafts)):
        text = f"schedule().drafts must be a list of (sequence, tokens); it is {short(drafts)}"
        raise AdapterError(text, "schedule")


def _is_drafts(one: Any) -> bool:
    if not isinstance(one, (list, tuple)) or len(one) != 2 or not isinstance(one[1], (list, tuple)):
        return False
    return all(type(number) is int for number in (one[0], *one[1]))


class DraftModel:
    """What is proposed for the sequences of one scheduler, and what the step that is scheduled last verifies of it."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self.scheduler = scheduler
        self.accepted: dict[int, list[int]] = {}  # by sequence
        self._proposed: dict[int, Proposal] = {}  # by sequence

    def verified(self, step: ScheduledStep) -> ScheduledStep:
        """The step without the drafts that it rejects; those that it accepts are tokens of their sequences now.

        Raises Finding if it verifies what is no draft of the sequence, or not behind its newest token.
        """
        self.accepted, self.scheduler.num_rejected = {}, {}
        drafts, chunks = dict(step.drafts), []
        for chunk in step.chunks:
            ahead = self.scheduler.num_rejected_ahead(chunk.seq)
            chunk = chunk._replace(start=chunk.start - ahead, stop=chunk.stop - ahead)
            proposed = drafts.pop(chunk.seq, None)
            if self.scheduler.is_over_ahead(chunk.seq):
                chunk = self._in_vain(chunk)
            elif proposed is not None:
                chunk = self._verify(chunk, proposed)
            chunks.append(chunk)
        for seq_id in drafts:
            sentence = "a step verifies drafts of $sequence, and computes no token of it"
            raise Finding("read-back", sentence, call=SCHEDULE, sequence=f"sequence {seq_id}")
        return step._replace(chunks=chunks)

    def _in_vain(self, chunk: Chunk) -> Chunk:
        """What is left of the chunk of a sequence that is over: positions behind its tokens are computed in vain."""
        seq, num_known = self.scheduler.seqs[chunk.seq], len(self.scheduler.seqs[chunk.seq].tokens)
        if chunk.stop > num_known:
            self.scheduler.num_rejected[seq.id] = chunk.stop - num_known
        return chunk._replace(start=min(chunk.start, num_known), stop=min(chunk.stop, num_known))

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
        if is_padding and self.scheduler.config.async_steps:
            drafts = [*proposed.tokens[: len(drafts)], *drafts[len(proposed.tokens) :]]
        elif not is_padding and list(drafts) != proposed.tokens[: len(drafts)]:
            sentence = "a step verifies $observed as drafts of $sequence, for which $expected was proposed"
            raise Finding(
                "read-back",
                sentence,
                call=SCHEDULE,
                expected=proposed.tokens,
                observed=list(drafts),
                sequence=seq.name,
            )
        num_right = min(proposed.num_right, sum(token != PADDING for token in drafts))
        num_kept = min(num_right, self._room(seq))
        seq.grow_all(self.scheduler.oracle.identities, drafts[:num_kept])
        self.accepted[seq.id] = list(drafts[:num_right])
        self.scheduler.num_rejected[seq.id] = len(drafts) - num_kept
        coverage = self.scheduler.coverage
        coverage["draft accepted"] += num_right
        coverage["draft rejected"] += len(drafts) - num_right
        coverage["drafts cut off"] += num_right - num_kept
        return chunk._replace(stop=num_known + num_kept)

    def _room(self, seq: ExpectedSequence) -> int:
        """How many tokens the sequence may still get; any number where steps go on before it is known to be over."""
        if self.scheduler.config.async_steps:
            return self.scheduler.config.speculative_tokens
        return max(0, self.scheduler.room(seq))

    def propose(
        self, drafts: Iterable[Drafts], seqs: set[int], in_prompts: Collection[int] = ()
    ) -> dict[int, list[int]]:
        """Propose these (sequence, tokens, number of right ones), of sequences that have a newer token now.

        in_prompts: sequences of which the step has computed a part of the prompt only. A model guesses for them, too,
        and that means nothing. Returns the drafts of each sequence; those that were proposed before are void.
        """
        most, known = self.scheduler.config.speculative_tokens, self.scheduler.seqs
        self._proposed = {i: one for i, one in self._proposed.items() if i in known and i not in seqs}
        for seq_id, tokens, num_right in drafts:
            if seq_id in seqs and tokens:
                self._proposed[seq_id] = Proposal(list(tokens[:most]), num_right)
        proposed = {i: self._proposed[i].tokens[:] if i in self._proposed else [] for i in sorted(seqs)}
        return proposed | {i: list(tokens[:most]) for i, tokens, _ in drafts if i in in_prompts and tokens}
