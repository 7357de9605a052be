"""Explaining a recording: the judge of the manager, driven by what was called instead of by operations it draws.

What the specification says is asked of the same methods that judge a manager in lockstep. Here is only what stands
between a line and them: which sequences it is about, what became known of them, and when a step is over. A step is
executed when the first line comes that cannot belong to it any more.

What a step computes is known from what the engine says (`num_computed`, and how many tokens it asks slots for). A token
that becomes known only after its step was scheduled, as with steps that are prepared ahead or with drafts, counts as
computed with the next step: no line before could have used its KV for anything.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.manager.admitting import Admitting
from kvproof.check.oracle.manager.releasing import Releasing
from kvproof.check.oracle.manager.stepping import Stepping
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.recording.bounded_state import BoundedIdentities, enlarge
from kvproof.check.recording.format import ENDED, STOPPED, Call, Header, RecordedSequence
from kvproof.check.recording.replayed_subject import ReplayedManager, Unjudged
from kvproof.spec.text.identity import Image, Key

SPARE_ENTRIES = 8


def config_of(header: Header) -> Config:
    """The configuration of the manager that was recorded."""
    return Config(
        block_size=header.block_size,
        num_gpu_blocks=header.num_gpu_blocks,
        num_host_blocks=header.num_host_blocks,
        watermark=header.watermark,
        window=header.window,
        caching=header.caching,
        chunked=True,
        kv_groups=tuple(header.kv_groups),
    )


class RecordingJudge(Admitting, Releasing, Stepping):
    """One recording, beside the specification. A call is explained by the method `on_` and its name."""

    def __init__(self, header: Header) -> None:
        if not header.is_fresh:
            raise Unjudged(
                "the recording begins when the manager is in use: what its blocks hold is not known; "
                "record from before the first request on"
            )
        self.replayed = ReplayedManager(header)
        self.names = BoundedIdentities()
        super().__init__(cast(ManagerSubject, self.replayed), config_of(header), self.names)
        self.is_step_scheduled = False  # what the step computes is told; the next line that is no part of it ends it
        self._group_numbers: dict[str, int] = {}
        self._num_groups = 0

    def explain(self, line: Call) -> None:
        """Explain one line. Raises Finding, or Unjudged."""
        if line.call == ENDED:
            return
        if line.call == STOPPED:
            raise Unjudged(f"the recorder stopped here: {line.answer}")
        if line.unjudged:
            raise Unjudged(f"{line.call} with {', '.join(line.unjudged)} is not judged from a recording")
        handler: Callable[[Call], None] | None = getattr(self, f"on_{line.call}", None)
        if handler is None:
            raise Unjudged(f"no call {line.call!r} is known for this interface")
        if self.ends_step(line):
            self.end_step()
        self.replayed.play(line)
        handler(line)
        if self.names.is_full:
            self._forget_names()

    def ends_step(self, line: Call) -> bool:
        """Whether this line cannot be part of the step under way."""
        raise NotImplementedError

    def end_step(self) -> None:
        """The step under way is executed, and everyone reads back."""
        self.is_step_scheduled = False
        size = self.config.block_size
        if any(stop > min(map(len, seq.tables)) * size for seq, _, stop in self.worker.writes):
            self.explainer.executed(self.worker.writes)  # the specification refuses what has no slots
        self.op_run(1)

    def finish(self) -> None:
        """The recording is over."""
        self.end_step()

    # What lines are about -------------------------------------------------------------------------------------------

    def known(self, recorded: RecordedSequence) -> ExpectedSequence:
        """A sequence that has tables."""
        seq = self.seqs.get(recorded.seq)
        if seq is None:
            raise Unjudged(f"sequence {recorded.seq} was given blocks by no line before")
        return seq

    def group_number(self, name: str) -> int:
        """A request's number, from its first line on until it has no sequence any more."""
        number = self._group_numbers.get(name)
        if number is None:
            self._num_groups += 1
            number = self._group_numbers[name] = self._num_groups
        return number

    def phantom(self, line: Call) -> Group:
        """A group of which only the length is known: a question was about it."""
        group = Group(self.group_number(line.group))
        for _ in range(max(1, line.num_seqs)):
            seq = ExpectedSequence(0, group, Key(), (), 0)
            seq.tokens = [0] * line.num_tokens
            group.members.append(seq)
        if group.id not in self.groups:
            del self._group_numbers[line.group]
        return group

    def arrive(self, line: Call) -> Group:
        """The sequences that a line gives tables to, waiting in a group."""
        number = self.group_number(line.group)
        if number in self.groups or not line.seqs:
            raise Unjudged(f"request {line.group} is given tables and has some, or has no sequence")
        group = self.groups[number] = Group(number)
        for recorded in line.seqs:
            if recorded.seq in self.seqs or recorded.start or not recorded.tokens:
                raise Unjudged(f"sequence {recorded.seq} is given a table, and has one or its tokens were not told")
            images = tuple(Image(one.name, one.start, one.length) for one in recorded.images)
            key = Key(None, recorded.adapter, recorded.extra or None)
            group.members.append(self.new_sequence(recorded.seq, group, key, images, recorded.tokens))
        self.make_room(line)
        return group

    def make_room(self, line: Call) -> None:
        """Let the specification have room for what the line is about."""
        sizes = self.explainer.machine.sizes
        longest = max(
            (table.kept + len(table.rest) for recorded in line.seqs for table in recorded.tables or ()), default=0
        )
        num_needed = len(line.seqs) * len(self.config.kv_groups)
        if longest + SPARE_ENTRIES <= sizes.num_indexes and num_needed <= len(self.explainer.free_slots):
            return
        num_indexes = sizes.num_indexes if longest + SPARE_ENTRIES <= sizes.num_indexes else 2 * longest + SPARE_ENTRIES
        num_seqs = sizes.num_seqs if num_needed <= len(self.explainer.free_slots) else 2 * sizes.num_seqs + num_needed
        self.state = enlarge(self.explainer, num_seqs, num_indexes)

    def learn(self, seq: ExpectedSequence, recorded: RecordedSequence) -> None:
        """The tokens that a line tells of a sequence that has tables."""
        num_known = len(seq.tokens)
        if not 0 <= recorded.start <= num_known:
            raise Unjudged(
                f"tokens of sequence {seq.id} are told from position {recorded.start} on, {num_known} are known"
            )
        if seq.tokens[recorded.start :] != recorded.tokens[: num_known - recorded.start]:
            raise Unjudged(f"tokens of sequence {seq.id} are told anew, and are others")
        for token in recorded.tokens[num_known - recorded.start :]:
            seq.grow(self.identities, token)

    def set_lookahead(self, num_slots: int) -> None:
        """How many slots beyond the known tokens a call asks for."""
        if num_slots != self.config.lookahead:
            self.config = replace(self.config, lookahead=num_slots)

    def scheduled(self, seq: ExpectedSequence, start: int, stop: int) -> None:
        """The step under way computes these positions."""
        seq.computed, seq.is_busy = stop, True
        self.worker.writes.append((seq, start, stop))

    def unscheduled(self, seq: ExpectedSequence, computed: int) -> None:
        """What the step computes of a sequence is told by another line, or nothing is."""
        self.worker.writes = [write for write in self.worker.writes if write[0] is not seq]
        seq.computed, seq.is_busy = computed, False

    def leave(self, line: Call) -> None:
        """A sequence gives up every block, whether it is over or waits again."""
        recorded, before = line.seqs[0], self.explainer.observed
        seq, context = self.seqs.get(recorded.seq), f"free({recorded.seq})"
        if seq is None:
            self.call("total-calls", "free", recorded.seq)
            self.require_unchanged(before, f"{context} is of a sequence without blocks")
            return
        if seq.is_busy:
            self.unscheduled(seq, seq.computed)
        group = seq.group
        group.members.remove(seq)
        del self.seqs[seq.id]
        if not group.members:
            del self.groups[group.id]
            self._group_numbers = {name: number for name, number in self._group_numbers.items() if number != group.id}
        self.call("total-calls", "free", seq.id)
        self.observe(context)
        self.explainer.freed(seq, context)
        self.settle(context)

    def on_reset_prefix_cache(self, line: Call) -> None:
        """The prefix cache is forgotten."""
        before = self.explainer.observed
        self.replayed.answer = line.answer
        if not self.op_reset():
            self.call("total-calls", "reset_cache")
            self.require_unchanged(before, "reset_prefix_cache has nothing to forget")

    def look_up(self, line: Call) -> None:
        """A question about the prefix cache."""
        before = self.explainer.observed
        self.replayed.answer = line.answer
        self.call("total-calls", "hits", line.seqs[0].seq if line.seqs else 0)
        self.require_unchanged(before, "a look-up only asks")

    def _forget_names(self) -> None:
        state, used = self.state, set[int]()
        for rows in (state.content, state.memory, self.worker.slots):
            used.update(*rows)
        for seq in self.seqs.values():
            for part in seq.parts:
                used.update(part.identities)
                used.add(part.last)
        self.names.keep_only(used)
