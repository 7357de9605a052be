"""The outputs of the image encoder at the worker: judged of a scheduler that declares `encodes_images`.

A step names the images that it computes, and the images whose outputs the worker shall drop. The worker drops first,
then computes, and then the tokens of the step read the outputs of the images that they lie in. Each of these must be
there. Where the scheduler keeps outputs in a room of so many embeddings, the worker has no more than these after it.

A request that runs may wait for room for the output that its next token reads. Others may have the room that run and
have read a token of theirs, also if they have read all of it, and images that the step computes. Who does not run has
none of it.
"""

from collections.abc import Iterator, Mapping

from kvproof.check.oracle.expected import ExpectedSequence, Status, lie_apart
from kvproof.check.oracle.scheduler.base import SCHEDULE, SchedulerState
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.scheduler import ScheduledStep
from kvproof.spec.text.budgets import has_room_for_output
from kvproof.spec.text.identity import Image, covers_some


class EncoderOutputs:
    """What the worker has. there: the images, each with its number of embeddings."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self.scheduler, self.coverage = scheduler, scheduler.coverage
        self.there: dict[str, int] = {}
        self._newest: dict[str, int] = {}  # of them, those that the newest step computes

    def judge(self, step: ScheduledStep) -> None:
        """The worker does what the step says, and has all that the tokens of the step read."""
        for name in step.dropped:
            self.coverage["output dropped"] += self.there.pop(name, 0) > 0
        self._newest = {image.name: image.length for image in self._encoded(step)}
        self.there |= self._newest
        self.coverage["image computed"] += len(self._newest)
        for chunk in step.chunks:
            seq = self.scheduler.seqs[chunk.seq]
            for image in seq.images:
                if covers_some(image, chunk.start, chunk.stop):
                    self._require(image, seq)
        room = self.scheduler.config.encoder_room
        if room and (num := sum(self.there.values())) > room:
            sentence = "the worker keeps $observed embeddings of images, and has room for $expected"
            raise Finding("budget-kept", sentence, call=SCHEDULE, expected=room, observed=num)

    def may_wait(self, seq: ExpectedSequence) -> bool:
        """Whether a sequence that runs lacks the output that its next token reads, and there may be no room for it."""
        next_token = seq.computed, seq.computed + 1
        image = next((image for image in seq.images if covers_some(image, *next_token)), None)
        if image is None or (image.name in self.there and image.name not in self._newest):
            return False
        kept = dict(self._newest)
        for request in self.scheduler.requests.values():
            for one in request.members:
                read = [other for other in one.images if other.start < one.computed]
                kept |= {other.name: other.length for other in read if one.status is Status.RUNNING}
        kept.pop(image.name, None)
        waits = not has_room_for_output(sum(kept.values()), image.length, self.scheduler.config.encoder_room)
        self.coverage["waits for room for an output"] += waits
        return waits

    def _require(self, image: Image, seq: ExpectedSequence) -> None:
        self.coverage["image read"] += 1
        if image.name not in self.there:
            raise Finding(
                "hit-written",
                f"a step computes tokens of image {image.name} of $sequence, and the worker has no output of it",
                call=SCHEDULE,
                sequence=seq.name,
            )

    def _encoded(self, step: ScheduledStep) -> Iterator[Image]:
        for seq_id, places in step.encoded:
            images = self.scheduler.seqs[seq_id].images if seq_id in self.scheduler.seqs else ()
            for place in places:
                if not 0 <= place < len(images):
                    raise AdapterError(f"schedule().encoded names image {place} of sequence {seq_id}", "schedule")
                yield images[place]


def are_possible(images: tuple[Image, ...], num_tokens: int, room: int, lengths: Mapping[str, int]) -> bool:
    """Whether the engine takes a prompt with these images: they lie in it in order, and there is room for each.

    lengths: of the images that came before; an image of one name has one length.
    """
    of_name = dict(lengths)
    has_one = all(of_name.setdefault(image.name, image.length) == image.length for image in images)
    return lie_apart(images, num_tokens) and has_one and all(one.length <= (room or one.length) for one in images)
