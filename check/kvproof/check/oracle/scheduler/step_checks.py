"""What must hold of a step once it is explained: room is left, there are places, and each chunk is called rightly; and
which sequences of a step get a token, and which are over with it.
"""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.scheduler.base import SCHEDULE, SchedulerState, UnderWay
from kvproof.check.protocol.adapter_check import check_numbers, short
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.scheduler import Chunk, Load, ScheduledStep
from kvproof.spec.text.budgets import have_places, may_be_a_decode, must_be_a_decode
from kvproof.spec.text.state import GPU


def check_step(step: ScheduledStep) -> None:
    """Raise AdapterError if something in a step has a wrong type; types are not checked at each call."""
    for name, kind in (("chunks", Chunk), ("loads", Load)):
        for one in getattr(step, name):
            if not isinstance(one, kind):
                sentence = f"schedule().{name} must be a list of {kind.__name__}; one is {short(one)}"
                raise AdapterError(sentence, "schedule")
    for name in ScheduledStep._fields:
        check_numbers(f"schedule().{name}", getattr(step, name), str if name == "dropped" else int)


def judge_room_left(state: SchedulerState, seq: ExpectedSequence) -> None:
    """The manager has said OK to this sequence: room for its lookahead slots and the watermark are left."""
    lookahead = state.config.lookahead if state.capabilities.admits_lookahead else 0
    blocks_needed, num_tables = state.explainer.machine.function("blocks_needed"), len(state.config.kv_groups)
    num_tokens, unused = len(seq.tokens), state.explainer.unused_in(state.state, GPU)
    needed = blocks_needed(num_tokens, lookahead, num_tables) - blocks_needed(num_tokens, 0, num_tables)
    num_held_back = state.oracle.num_held_back
    if not state.explainer.machine.function("may_answer_ok")(needed, unused, num_held_back):
        raise Finding(
            "admission-sound",
            f"$sequence was admitted, and $observed blocks are left; {needed} more are needed for its lookahead, "
            f"and {num_held_back} are held back by the watermark",
            call=SCHEDULE,
            expected=needed + num_held_back,
            observed=unused,
            sequence=seq.name,
        )


def judge_prompts(state: SchedulerState, chunks: Sequence[Chunk], prompts: set[int]) -> None:
    """The worker computes prompts and decodes with different kernels, so each chunk must be called rightly."""
    for chunk in chunks:
        seq, is_prompt = state.seqs[chunk.seq], chunk.seq in prompts
        num_sent = state.requests[seq.group.id].num_prompt
        if is_prompt and must_be_a_decode(chunk.stop, seq.num_prompt):
            expected, observed = "a decode", "a part of a prompt"
        elif not is_prompt and not may_be_a_decode(chunk.start, chunk.stop, num_sent):
            expected, observed = "a part of a prompt", "a decode"
        else:
            continue
        raise Finding(
            "read-back",
            f"positions {chunk.start} to {chunk.stop - 1} of $sequence are in the step as $observed; they are "
            "$expected",
            call=SCHEDULE,
            expected=expected,
            observed=observed,
            sequence=seq.name,
        )


def judge_places(state: SchedulerState) -> None:
    """After an admission or a swap in there are places for all. Forks alone may take more: the model makes them."""
    places = state.config.max_num_seqs
    members = [seq for r in state.requests.values() if not r.is_doomed for seq in r.members]
    num_running = sum([seq.status is Status.RUNNING and seq.id not in state.without_slot for seq in members])
    if not state.capabilities.bounds_only_steps and not have_places(num_running, places):
        sentence = "somebody was let in, and $observed sequences run, $expected may"
        raise Finding("budget-kept", sentence, call=SCHEDULE, expected=places, observed=num_running)


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
                again = self.scheduler.to_sample_again.get(seq.id)
                under.sampled[seq.id] = again.pop() if again else tokens[index % len(tokens)]
                if self.scheduler.config.async_steps or self.scheduler.room(seq) > 0:  # else a draft was its last token
                    seq.grow(self.scheduler.oracle.identities, under.sampled[seq.id])
                if self.scheduler.room(seq) <= 0:
                    under.over.add(seq.id)

    def is_doomed(self, seq: ExpectedSequence) -> bool:
        """Whether the request of the sequence is over, and goes on in no step."""
        request = self.scheduler.requests[seq.group.id]
        return request.is_doomed and not request.is_lingering

    def _samples(self, seq: ExpectedSequence, stop: int) -> bool:
        return stop == len(seq.tokens) and not self.is_doomed(seq)
