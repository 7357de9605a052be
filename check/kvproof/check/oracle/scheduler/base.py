"""State of the judge of schedulers: requests, steps under way, transfers. The rest it shares with other judges."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kvproof.check.oracle.comparison import has_blocks
from kvproof.check.oracle.computed import explain_step
from kvproof.check.oracle.expected import ExpectedSequence, Group, Status
from kvproof.check.oracle.memory import compare_memory
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.oracle.scheduler.held_stores import HeldStores
from kvproof.check.oracle.scheduler.host_memory import HostMemory
from kvproof.check.oracle.scheduler.pending import NUM_TRANSFERS_MAX, Pending, num_flights_max
from kvproof.check.oracle.scheduler.what_is_judged import require_judged
from kvproof.check.protocol.adapter_check import capabilities_of, check_adapter
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import FINISHED, SCHEDULER_CALLS, ScheduledStep, SchedulerConfig, SchedulerSubject
from kvproof.spec.text.budgets import num_stored_idly_max
from kvproof.spec.text.identity import Identities


class ExpectedRequest(Group):
    """A group of sequences, and how much it generates.

    It is *doomed* when it is over but a step under way still uses its blocks. It *lingers* if it was aborted, and its
    scheduler has not reported that it is over (`aborts_late`).
    """

    __slots__ = (
        "aborted_after",
        "arrival",
        "inputs",
        "is_closed",
        "is_doomed",
        "is_idle",
        "is_lingering",
        "is_preempted",
        "is_sent",
        "is_session",
        "max_tokens",
        "newest_step",
        "num_overtaken",
        "num_prompt",
        "priority",
        "to_come",
    )

    def __init__(self, request_id: int, num_prompt: int, max_tokens: int) -> None:
        super().__init__(request_id)
        self.num_prompt, self.max_tokens, self.is_doomed = num_prompt, max_tokens, False
        self.is_lingering, self.aborted_after = False, 0  # how many steps were scheduled when it was aborted
        self.arrival, self.priority = 0, 0  # its number among all requests, and how important it is: 0 is first
        self.newest_step = -1  # the number of the newest step that computes tokens of it
        self.num_overtaken = 0  # later requests that were let in since this one began to wait, or was swapped out
        self.is_preempted = False  # whether it ran before, and had to give up all that it had computed
        self.is_sent = False  # whether its KV is sent elsewhere when it is over
        self.is_session = self.is_closed = False  # whether it goes on with further inputs; whether none comes any more
        self.is_idle = False  # whether it is a session that waits for its next input
        self.inputs: list[tuple[tuple[int, ...], int]] = []  # tokens that came early, and how many to generate then
        self.to_come: list[int] = []  # sequences that the scheduler will fork it into

    def everyone(self) -> list[ExpectedSequence]:
        """The members, and the encoder sequence if there is one."""
        return [*self.members, self.encoder] if self.encoder else self.members

    def num_left(self, seq: ExpectedSequence) -> int:
        """How many tokens a sequence is still to generate."""
        return self.max_tokens - (len(seq.tokens) - self.num_prompt)


def unfinished(requests: dict[int, ExpectedRequest]) -> Iterator[ExpectedRequest]:
    """The requests that are not doomed."""
    return (request for request in requests.values() if not request.is_doomed)


def num_gains_max(requests: Iterable[ExpectedRequest]) -> int:
    """The most gains (tokens to sample, requests to end) that are left if nothing forks and nothing arrives."""
    num_gains = 0
    for request in requests:
        own = 1 + sum(max(0, request.num_left(seq)) for seq in request.members)
        own += sum([1 + max_tokens for _, max_tokens in request.inputs])
        num_gains += own + len(request.to_come) * (1 + request.max_tokens)
    return num_gains


SCHEDULE, LAUNCH, COMPLETE = "schedule()", "launch()", "complete()"  # the calls of a step, as findings name them


@dataclass(eq=False)
class UnderWay:
    """A step that is scheduled and not complete."""

    step: ScheduledStep
    seqs: frozenset[int]  # whose blocks it uses
    flights: list[int]
    number: int = 0  # among all steps
    is_launched: bool = False
    sampled: dict[int, int] = field(default_factory=dict)  # the token of each sequence that it computes to its end
    over: set[int] = field(default_factory=set)  # sequences that have all their tokens with that
    accepted: dict[int, list[int]] = field(default_factory=dict)  # by sequence: drafts, before what is sampled
    rejected: dict[int, int] = field(default_factory=dict)  # by sequence: how many drafts
    failed: dict[int, list[int]] = field(default_factory=dict)  # by sequence: blocks that its load did not fill
    missing: dict[int, "UnderWay"] = field(default_factory=dict)  # by block without KV: the step whose load failed
    in_vain: dict[int, tuple["UnderWay", int]] = field(default_factory=dict)  # by sequence: why, and the tokens it has
    dropped: dict[int, int] = field(default_factory=dict)  # by sequence: a token that was sampled in vain

    @property
    def starts(self) -> dict[int, int]:
        """By sequence, the first token that the step computes or loads."""
        return {one.seq: one.start for one in self.step.chunks} | {one.seq: one.hit for one in self.step.loads}


class SchedulerState:
    """An opened scheduler, its requests, and the steps and transfers under way."""

    def __init__(
        self, subject: SchedulerSubject, config: SchedulerConfig, identities: Identities | None = None
    ) -> None:
        check_adapter(subject, SCHEDULER_CALLS)
        require_judged(config, capabilities_of(subject))
        self.moves_kv = config.transfers or bool(config.connector)  # KV comes and goes while steps run
        self.requests: dict[int, ExpectedRequest] = {}
        self.under_way: list[UnderWay] = []  # steps, the oldest first
        self.loading: dict[int, list[int]] = {}  # sequences whose KV is coming, and its flights
        self.sending: dict[int, list[int]] = {}  # sequences, over, whose KV is being sent, and its flights
        self.read_elsewhere: dict[int, frozenset[int]] = {}  # of those sequences: blocks that later tokens would read
        self.aborted_in: dict[int, UnderWay] = {}  # of aborted sequences that are sent: the newest step at that time
        self.ending: dict[int, tuple[str, ...]] = {}  # requests that are over, until the subject reports how they ended
        self.finished: dict[int, list[int]] = {}  # by request that is not over: its sequences that ended by themselves
        self.to_sample_again: dict[int, list[int]] = {}  # by sequence: tokens that were sampled in vain, the last first
        self.loads_in_step: set[tuple[int, int]] = set()  # of the explained step: sequences, and where the loads begin
        self.without_slot: set[int] = set()  # sequences that have tables, but do not count as running
        self.num_rejected: dict[int, int] = {}  # by sequence: drafts that the explained step computes in vain
        self.used_by_step: dict[int, ExpectedSequence] = {}  # sequences whose blocks the explained step uses
        self.num_steps = self.num_arrived = 0
        self.paused = ""  # how the scheduler is paused, one of `PAUSES`; empty: it is not
        self.num_stored_idly = 0  # since the last request was over: blocks that steps named for stores
        self.last_step: int | None = None  # after the last arrival: the step by which all requests must be over
        # Loads from elsewhere write in no order with the steps: then a step uses its blocks until it is complete.
        self.steps_in_order = capabilities_of(subject).steps_in_order and not (self.moves_kv and config.async_steps)
        num_transfers = NUM_TRANSFERS_MAX if self.moves_kv else 1
        num_flights = num_flights_max(config.num_gpu_blocks + config.num_host_blocks, num_transfers)
        knows_early = not (config.async_steps or self.moves_kv or config.speculative_tokens)  # what a step will cache
        oracle = Oracle(subject, config, identities, num_flights=num_flights, knows_cached=knows_early)
        self.oracle, self.config, self.capabilities = oracle, config, oracle.capabilities
        oracle.lookahead += config.speculative_tokens  # drafts take slots beyond the known tokens too
        self.explainer, self.worker, self.state = oracle.explainer, oracle.worker, oracle.state
        self.seqs, self.coverage, self.call = oracle.seqs, oracle.coverage, oracle.call
        self.pending = Pending(self.explainer, num_flights)
        self.host = HostMemory(self.worker, self.coverage) if config.connector else None
        self.held: HeldStores | None = None
        if self.host and self.capabilities.holds_copies:
            self.held = HeldStores(self.host, self.pending)

    @property
    def is_launched(self) -> bool:
        """Whether every step under way is being executed: at most the newest one is not."""
        return not self.under_way or self.under_way[-1].is_launched

    @property
    def may_schedule(self) -> bool:
        """Whether a step may be scheduled now, or the scheduler be paused or reset: the engine waits for no step."""
        return self.is_launched and len(self.under_way) <= self.config.async_steps

    def is_done(self) -> bool:
        """Whether every request is over, and no step or transfer is under way; stores may go on without end."""
        if self.under_way or self.requests:
            return False
        return not self.is_transferring or self.stores_idly

    @property
    def stores_idly(self) -> bool:
        """Whether stores to host memory go on without end, although no request is left."""
        return self.num_stored_idly > num_stored_idly_max(self.config.num_gpu_blocks)

    @property
    def is_transferring(self) -> bool:
        """Whether any transfer is under way."""
        return bool(
            self.loading or self.sending or (self.host and self.host.copies) or (self.held and self.held.to_come)
        )

    def settle(self, context: str) -> None:
        """Every change of a call is explained: compare the rest. Raises Finding."""
        if self.held:
            self.held.look(self.call("total-calls", "stores_to_come"), context)
        self.oracle.settle(context)

    def is_in_flight(self, request: ExpectedRequest) -> bool:
        """Whether a step under way uses blocks of the request."""
        return any(seq.id in under.seqs for under in self.under_way for seq in request.everyone())

    def no_longer_needed(self) -> list[ExpectedRequest]:
        """The requests that are over, and that no step under way uses."""
        over = [one for one in self.requests.values() if one.is_doomed and not one.is_lingering]
        return [one for one in over if not self.is_in_flight(one)]

    def num_blocks_at_most(self, request: ExpectedRequest) -> int:
        """Blocks that are enough for the whole life of a request, however it shares, copies and preempts."""
        blocks_for = self.explainer.blocks_for
        lookahead = self.oracle.lookahead
        num_spare = 1 + blocks_for(lookahead + 1)  # a refusal may count each block that a growth writes as new
        num_tokens = max(len(seq.tokens) + max(0, request.num_left(seq)) for seq in request.members)
        num_tokens += sum([len(tokens) + max_tokens for tokens, max_tokens in request.inputs])
        each = num_spare + sum(layout.entries(num_tokens + lookahead) for layout in self.oracle.layouts)
        num_encoded = blocks_for(len(request.encoder.tokens)) if request.encoder else 0
        return num_encoded + each * (len(request.members) + len(request.to_come))

    def hold_until_complete(self, request: ExpectedRequest, context: str) -> None:
        """A request that leaves, and that a step under way uses, keeps its blocks until the newest step is complete.

        This is so only if loads from elsewhere may write to them in no order with the steps.
        """
        if self.steps_in_order == self.capabilities.steps_in_order:
            return
        newest = self._newest_step()
        if newest and self.is_in_flight(request):
            everyone = [seq for seq in request.everyone() if seq.slot >= 0]
            newest.flights += self.pending.launch(everyone, context, self.starts_under_way())

    def begin_send(self, seq: ExpectedSequence, context: str) -> None:
        """The KV of a sequence that is over is sent elsewhere, where the next token would read it."""
        self.sending[seq.id] = self.pending.launch([seq], context)
        read = self.pending.launch([seq], context, {seq.id: seq.computed})
        self.read_elsewhere[seq.id] = frozenset(self.state.uses[flight] for flight in read)
        self.pending.land(read, context)

    def judge_sends(self, context: str) -> None:
        """What is sent is kept until it is sent; blocks that no later token reads may be given up before."""
        if not (self.sending and self.oracle.leaves_entries):
            return
        kept, uses = self.call("total-calls", "being_sent"), self.state.uses
        for seq_id, flights in self.sending.items():
            if seq_id not in kept:  # the abort is not carried out yet; or nothing is kept, and the pool shows it
                continue
            held = {block for table in kept[seq_id] for block in table}
            left = [flight for flight in flights if uses[flight] not in held]
            if lost := sorted({uses[flight] for flight in left} & self.read_elsewhere[seq_id]):
                sentence, name = "$sequence is being sent, and gives blocks $observed up", f"sequence {seq_id}"
                raise Finding("in-flight-held", sentence, call=context, observed=lost, blocks=lost, sequence=name)
            flights[:] = [flight for flight in flights if flight not in left]
            self.coverage["send without what the window left"] += bool(left)
            self.pending.land(left, context)

    def starts_under_way(self) -> dict[int, int]:
        """By sequence, the first token that a step under way computes or loads."""
        return {seq: start for under in reversed(self.under_way) for seq, start in under.starts.items()}

    def end_send(self, seq_id: int, context: str) -> None:
        """The KV of a sequence was sent. What a step under way uses is kept until the newest step is complete."""
        flights, newest = self.sending.pop(seq_id), self._newest_step()
        if newest and any(seq_id in under.seqs for under in self.under_way):
            newest.flights += flights
        else:
            self.pending.land(flights, context)

    def _newest_step(self) -> UnderWay | None:
        """The newest step under way that computes anything."""
        return next((under for under in reversed(self.under_way) if under.step.chunks), None)

    def room(self, seq: ExpectedSequence) -> int:
        """How many tokens a sequence may still get; it is over with none, and below 0 if it has more than it may."""
        return min(self.requests[seq.group.id].num_left(seq), self.config.max_model_len - len(seq.tokens))

    def num_rejected_ahead(self, seq_id: int) -> int:
        """How many drafts of a sequence the steps under way reject, which the scheduler does not know yet."""
        return sum([under.rejected.get(seq_id, 0) for under in self.under_way])

    def is_over_ahead(self, seq_id: int) -> bool:
        """Whether the sequence has all its tokens with the steps under way, which the scheduler does not know yet."""
        return seq_id in self.seqs and any(seq_id in under.over for under in self.under_way)

    def num_tokens_ahead(self, seq_id: int) -> int:
        """How many tokens of a sequence the steps under way give, which the scheduler does not know yet."""
        return sum([1 + len(one.accepted.get(seq_id, ())) for one in self.under_way if seq_id in one.sampled])

    def to_come(self) -> Iterable[int]:
        """The sequences that requests will fork into."""
        return (child for request in self.requests.values() for child in request.to_come)

    def forget(self, request: ExpectedRequest) -> None:
        """A request is over; the subject must not show its sequences any more."""
        del self.requests[request.id]
        if request.id not in self.ending:
            self.finished.pop(request.id, None)
        for seq in request.everyone():
            del self.seqs[seq.id]
            self.without_slot.discard(seq.id)
            self.to_sample_again.pop(seq.id, None)

    def judge_ends(self, context: str, may_end: Mapping[int, tuple[str, ...]] = MappingProxyType({})) -> Iterable[int]:
        """The subject reports how requests ended: each that is over, once no step is under way, and no other.

        may_end: requests that may be over too, each with how. Returns the requests that are reported.
        """
        if not self.capabilities.reports_ends:
            self.ending.clear()
            return ()
        reported: dict[int, str] = self.call("total-calls", "ended")
        for request_id, end in reported.items():
            expected = self.ending.pop(request_id, may_end.get(request_id, ()))
            if end not in expected:
                words = " or ".join(expected) or "not over"
                raise Finding(
                    "progress",
                    f"request {request_id} is reported as $observed, and is $expected",
                    call=context,
                    expected=words,
                    observed=end,
                )
        if reported and self.capabilities.reports_each_end:
            self._judge_each_end(reported, context)
        for request_id in reported:
            if request_id in self.requests:
                self.requests[request_id].is_lingering = False
        late = [i for i in self.ending if not (i in self.requests and self.requests[i].is_lingering)]
        if late and not self.under_way:
            request_id, expected = late[0], self.ending[late[0]]
            raise Finding(
                "progress",
                f"request {request_id} is over, and that it is $expected is not reported to its user",
                call=context,
                expected=" or ".join(expected),
            )
        return reported

    def _judge_each_end(self, reported: Mapping[int, str], context: str) -> None:
        """A sequence that ended by itself before its request was over is reported so."""
        ends: dict[int, str] = self.call("total-calls", "each_ended")
        for request_id in reported:
            for seq_id in self.finished.pop(request_id, ()):
                self.coverage["finished before its request was over"] += 1
                if (end := ends.get(seq_id, "not at all")) != FINISHED:
                    raise Finding(
                        "progress",
                        f"$sequence of request {request_id} had ended by itself before, and is reported as $observed",
                        call=context,
                        expected=FINISHED,
                        observed=end,
                        sequence=f"sequence {seq_id}",
                    )

    def execute(self) -> None:
        """The worker executes what was scheduled, and every reader reads back."""
        worker, lookahead = self.worker, self.oracle.lookahead
        if worker.is_pending:
            writes, others = worker.writes[:], worker.in_other_orders(lookahead)
            worker.execute(lookahead)
            explain_step(self.explainer, writes, self.loads_in_step)
            compare_memory(self.oracle, others)
        worker.fresh.clear()
        self.loads_in_step.clear()

    def observe_released(self, context: str, touched: Sequence[ExpectedSequence] = ()) -> None:
        """Observe the subject. A request that is over while a step uses its blocks may release them now or later.

        A scheduled step is executed, even if its requests are over. If one of its sequences is released before the
        launch, the step is executed here, while its tables are known. That makes no difference, for what is in flight
        is not given to others. When a step is complete, cached blocks of equal content may also replace its blocks.
        """
        exchanged = []
        if self.capabilities.dedups_after_step and context == COMPLETE:
            exchanged = [seq for seq in self.seqs.values() if seq.status is Status.RUNNING and seq.slot >= 0]
        doomed = [seq for request in self.requests.values() if request.is_doomed for seq in request.everyone()]
        released = []
        if doomed:
            tables = self.explainer.shown_part([seq.id for seq in doomed]).tables
            released = [seq for seq in doomed if seq.slot >= 0 and not has_blocks(tables.get(seq.id))]
        if released:
            self.execute()
        self.oracle.observe(context, [*released, *touched, *exchanged])
        for seq in released:
            self.explainer.freed(seq, context)
            seq.status = Status.WAITING
        for seq in exchanged:
            if seq.slot >= 0:
                self.explainer.exchanged(seq, context)

    # A scheduler that runs ahead launches a step before it processes the results of the one before. The results go back
    # to it only when a newer step is launched, as long as any request can be scheduled. A request that leaves the GPU
    # while a step samples its token loses that token, and it is sampled again.

    def may_complete(self) -> bool:
        """Whether the results of the oldest step may go back now."""
        if not (self.under_way and self.is_launched):
            return False
        runs_ahead = self.capabilities.runs_ahead and self.config.async_steps
        is_more = any(unfinished(self.requests)) or any(one.is_lingering for one in self.requests.values())
        return not runs_ahead or len(self.under_way) > 1 or not is_more

    def may_preempt_all(self) -> bool:
        """Whether a reset may preempt those who run: none has KV under way, and no bound on the steps to come holds."""
        is_moving = self.loading or self.sending or self.without_slot or (self.held and self.is_transferring)
        knows_all = not (self.under_way and (self.moves_kv or self.config.speculative_tokens))
        return self.last_step is None and not is_moving and knows_all

    def lose_sampled(self, request: ExpectedRequest) -> None:
        """The request is preempted between steps: what steps under way sample for it is lost, and sampled again."""
        for under in reversed(self.under_way):
            for seq in request.members:
                if (token := under.sampled.pop(seq.id, None)) is not None:
                    under.dropped[seq.id] = token
                    under.over.discard(seq.id)
                    self.to_sample_again.setdefault(seq.id, []).append(token)
                    seq.drop_last_token(self.oracle.identities)
                    self.coverage["token lost by a reset"] += 1

    def drop_sampled(self, request: ExpectedRequest) -> None:
        """The request leaves the GPU: the tokens that steps under way sample for it are lost."""
        if not self.capabilities.runs_ahead:
            return
        for under in reversed(self.under_way):
            for seq in request.members:
                if under.sampled.pop(seq.id, None) is not None:
                    under.over.discard(seq.id)
                    seq.drop_last_token(self.oracle.identities)
                    self.coverage["token dropped"] += 1
