"""The requests that the lines of a recording are about: their groups and sequences, and the tokens that lines add."""

from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.recording.format import RecordedCall, RecordedSequence
from kvproof.check.recording.replayed_subject import Unjudged
from kvproof.spec.text.identity import Image, Key

SPARE_ENTRIES = 8  # of a table


class RecordedRequests:
    """The requests of one recording that have sequences. numbers: of their groups, by the names of the requests."""

    def __init__(self, manager: ManagerJudge) -> None:
        self.oracle, self.explainer, self.groups = manager.oracle, manager.explainer, manager.groups
        self.numbers: dict[str, int] = {}
        self._num_groups = 0

    def known(self, recorded: RecordedSequence) -> ExpectedSequence:
        """The sequence of a line. Raises Unjudged if it has no tables."""
        seq = self.oracle.seqs.get(recorded.seq)
        if seq is None:
            raise Unjudged(f"no earlier line gave blocks to sequence {recorded.seq}")
        return seq

    def number_of(self, name: str) -> int:
        """The number of a request, from its first line until it has no sequences left."""
        number = self.numbers.get(name)
        if number is None:
            self._num_groups += 1
            number = self.numbers[name] = self._num_groups
        return number

    def phantom(self, line: RecordedCall) -> Group:
        """A group for a question about a request of which only the length is known."""
        group, tokens = Group(self.number_of(line.group)), [0] * line.num_tokens
        for _ in range(max(1, line.num_seqs)):
            seq = ExpectedSequence(0, group, Key(), (), 0)
            seq.tokens = tokens
            group.members.append(seq)
        if group.id not in self.groups:
            del self.numbers[line.group]
        return group

    def arrive(self, line: RecordedCall) -> Group:
        """A waiting group of the sequences to which the line gives tables. Raises Unjudged if they have tables."""
        number = self.number_of(line.group)
        if number in self.groups or not line.seqs:
            raise Unjudged(f"request {line.group} gets tables, but has tables already or has no sequence")
        group = self.groups[number] = Group(number)
        for recorded in line.seqs:
            if recorded.seq in self.oracle.seqs or recorded.start or not recorded.tokens:
                raise Unjudged(f"sequence {recorded.seq} gets a table, but has one already or has no recorded tokens")
            images = tuple(Image(one.name, one.start, one.length) for one in recorded.images)
            key = Key(None, recorded.adapter, recorded.extra or None)
            group.members.append(self.oracle.new_sequence(recorded.seq, group, key, images, recorded.tokens))
        self.make_room(line)
        return group

    def make_room(self, line: RecordedCall) -> None:
        """Enlarge the specification's state if the sequences of the line need it."""
        sizes = self.explainer.machine.sizes
        longest = max(
            (table.kept + len(table.rest) for recorded in line.seqs for table in recorded.tables or ()), default=0
        )
        num_needed = len(line.seqs) * len(self.oracle.config.kv_groups)
        if longest + SPARE_ENTRIES <= sizes.num_indexes and num_needed <= len(self.explainer.free_slots):
            return
        num_indexes = sizes.num_indexes if longest + SPARE_ENTRIES <= sizes.num_indexes else 2 * longest + SPARE_ENTRIES
        num_seqs = sizes.num_seqs if num_needed <= len(self.explainer.free_slots) else 2 * sizes.num_seqs + num_needed
        self.explainer.enlarge(num_seqs, num_indexes)

    def learn(self, seq: ExpectedSequence, recorded: RecordedSequence) -> None:
        """Add the tokens of a line to a sequence. Raises Unjudged if they contradict earlier lines."""
        num_known = len(seq.tokens)
        if not 0 <= recorded.start <= num_known:
            raise Unjudged(
                f"tokens of sequence {seq.id} are recorded from position {recorded.start} on, but {num_known} are known"
            )
        if seq.tokens[recorded.start :] != recorded.tokens[: num_known - recorded.start]:
            raise Unjudged(f"tokens of sequence {seq.id} differ from those in earlier lines")
        for token in recorded.tokens[num_known - recorded.start :]:
            seq.grow(self.oracle.identities, token)

    def remove(self, seq: ExpectedSequence) -> None:
        """A sequence is over or waits again; its request is forgotten with its last sequence."""
        group = seq.group
        group.members.remove(seq)
        del self.oracle.seqs[seq.id]
        if not group.members:
            del self.groups[group.id]
            self.numbers = {name: number for name, number in self.numbers.items() if number != group.id}

    def clear(self) -> None:
        """Every request is over."""
        for known in (self.oracle.seqs, self.groups, self.numbers):
            known.clear()
