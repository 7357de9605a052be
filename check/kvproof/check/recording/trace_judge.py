"""Judge a recording with the judge of managers, driven by recorded calls instead of drawn operations.

The methods that judge a manager in lockstep decide what the specification allows. This module only translates lines for
them: which sequences a line concerns, what the line adds about them, and when a step is over. A step is executed when
the first line arrives that cannot belong to it.

The engine reports what a step computes (`num_computed`, and the number of tokens for which it requests slots). A token
may become known only after its step was scheduled, for example with steps that are prepared ahead or with draft tokens.
It then counts as computed by the next step, because no earlier line can have used its KV.

Memory stays bounded, although a live server has many sequences and long tables, and a recording may have any length.
The state of the specification starts small and is enlarged when a sequence needs it. Identities of positions are
interned. An identity is forgotten if no sequence, no block and no longer identity in use refers to it. Numbers are
never reused, so a forgotten identity is never equal to another one.

`RecordedRequests` are those that the lines are about: their groups and sequences, and the tokens that lines add.
"""

from collections.abc import Callable, Iterable, Iterator

from kvproof.check.oracle.computed import explain_step
from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.manager import Config
from kvproof.check.recording.format import Header, RecordedCall, RecordedSequence
from kvproof.check.recording.replayed_subject import LineJudge, ReplayedManager, Unjudged, require_fresh
from kvproof.spec.text.identity import Identities, Image, Key, Root
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, HOST, RESERVED, USED

SPARE_ENTRIES = 8  # of a table

NUM_NAMES_MIN = 1 << 16
POOLS = {GPU: "gpu", HOST: "host"}
STATES = {FREE: "free", USED: "used", EVICTABLE: "evictable", RESERVED: "reserved"}


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


class BoundedIdentities(Identities):
    """Identities that can be forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.num_names_max = NUM_NAMES_MIN

    @property
    def is_full(self) -> bool:
        """Whether unused identities should be forgotten now."""
        return len(self._numbers) > self.num_names_max

    def keep_only(self, used: Iterable[int]) -> None:
        """Forget every identity except these and their prefixes."""
        names = {number: key for key, number in self._numbers.items()}
        kept: set[int] = set()
        for number in used:
            while number in names and number not in kept:
                kept.add(number)
                key = names[number]
                if isinstance(key, Root):
                    break
                number = key[0]
        for number in names.keys() - kept:
            del self._numbers[names[number]]
        self.num_names_max = max(NUM_NAMES_MIN, 2 * len(kept))


def config_of(header: Header) -> Config:
    """The configuration of the recorded manager."""
    return Config(
        block_size=header.block_size,
        num_gpu_blocks=header.num_gpu_blocks,
        num_host_blocks=header.num_host_blocks,
        watermark=header.watermark,
        window=header.window,
        local_chunk=header.local_chunk,
        caching=header.caching,
        chunked=True,
        kv_groups=tuple(header.kv_groups),
    )


class RecordingJudge(LineJudge):
    """Judges one recording. The method `on_NAME` explains a line with the call NAME.

    manager: the judge of the replayed manager. is_step_scheduled: the lines so far say what the current step computes;
    the next line of another step ends it.
    """

    def __init__(self, header: Header) -> None:
        require_fresh(header)
        self.replayed = ReplayedManager(header)
        self.names = BoundedIdentities()
        self.manager = manager = ManagerJudge(self.replayed, config_of(header), self.names)
        self.oracle, self.config, self.call = manager.oracle, manager.config, manager.call
        self.explainer, self.worker, self.state = manager.explainer, manager.worker, manager.state
        self.coverage, self.notes = manager.coverage, manager.notes
        self.seqs, self.groups = manager.seqs, manager.groups
        self.requests = RecordedRequests(manager)
        self.is_step_scheduled = False

    def explain_call(self, line: RecordedCall, handler: Callable[[RecordedCall], None]) -> None:
        if self.ends_step(line):
            self.end_step()
        self.replayed.play(line)
        handler(line)
        if self.names.is_full:
            self._forget_names()

    def ends_step(self, line: RecordedCall) -> bool:
        """Whether this line cannot belong to the current step."""
        raise NotImplementedError

    def end_step(self) -> None:
        """Execute the current step, and let every sequence read back its KV."""
        self.is_step_scheduled = False
        size = self.config.block_size
        if any(stop > min(map(len, seq.tables)) * size for seq, _, stop in self.worker.writes):
            explain_step(self.explainer, self.worker.writes)  # the specification refuses writes without slots
        self.manager.do("run", 1)

    def finish(self) -> None:
        self.end_step()

    def num_blocks(self) -> Iterator[tuple[str, str, int]]:
        for pool, pool_name in POOLS.items():
            for state, state_name in STATES.items():
                yield pool_name, state_name, self.state.count[pool][state]

    # What a line says about sequences -------------------------------------------------------------------------------

    def first_sequence(self, line: RecordedCall) -> RecordedSequence:
        """The sequence that a call is about. Raises Unjudged if the line has none."""
        if not line.seqs:
            raise Unjudged(f"the line of {line.call} has no sequence")
        return line.seqs[0]

    def set_lookahead(self, num_slots: int) -> None:
        """Set the number of slots beyond the known tokens that a call requests."""
        self.oracle.lookahead = num_slots

    def scheduled(self, seq: ExpectedSequence, start: int, stop: int) -> None:
        """Record that the current step computes positions `start` to `stop - 1` of a sequence."""
        seq.computed, seq.is_busy = stop, True
        self.worker.writes.append((seq, start, stop))

    def unscheduled(self, seq: ExpectedSequence, computed: int) -> None:
        """Remove a sequence from the current step, and reset its number of computed tokens."""
        self.worker.writes = [write for write in self.worker.writes if write[0] is not seq]
        seq.computed, seq.is_busy = computed, False

    def leave(self, line: RecordedCall) -> None:
        """Free all blocks of a sequence, which has ended or waits again."""
        recorded, before = self.first_sequence(line), self.explainer.observed
        seq, context = self.seqs.get(recorded.seq), f"free({recorded.seq})"
        if seq is None:
            self.call("total-calls", "free", recorded.seq)
            self.oracle.require_unchanged(before, f"{context} concerns a sequence without blocks")
            return
        if seq.is_busy:
            self.unscheduled(seq, seq.computed)
        self.requests.remove(seq)
        self.call("total-calls", "free", seq.id)
        self.oracle.observe(context)
        self.explainer.freed(seq, context)
        self.oracle.settle(context)

    def on_reset_prefix_cache(self, line: RecordedCall) -> None:
        before = self.explainer.observed
        self.replayed.answer = line.answer
        if not self.manager.do("reset"):
            self.call("total-calls", "reset_cache")
            self.oracle.require_unchanged(before, "reset_prefix_cache did not reset the cache")

    def look_up(self, line: RecordedCall) -> None:
        """Check that a look-up in the prefix cache changed nothing."""
        before = self.explainer.observed
        self.replayed.answer = line.answer
        self.call("total-calls", "hits", line.seqs[0].seq if line.seqs else 0)
        self.oracle.require_unchanged(before, "a look-up must not change anything")

    def _forget_names(self) -> None:
        state, used = self.state, set[int]()
        for rows in (state.content, state.memory, self.worker.slots):
            used.update(*rows)
        for seq in self.seqs.values():
            for part in seq.parts:
                used.update(part.identities)
                used.add(part.last)
        self.names.keep_only(used)
