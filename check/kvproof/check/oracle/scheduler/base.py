"""State of the judge of schedulers: requests, steps under way, transfers. The rest it shares with other judges."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvproof.check.oracle.enabled import RuledJudge
from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.oracle.scheduler.in_flight import Pending, num_flights_max
from kvproof.check.oracle.scheduler.requests import ExpectedRequest
from kvproof.check.protocol.adapter_check import check_adapter
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import (
    SCHEDULER_CALLS,
    ScheduledStep,
    SchedulerConfig,
    SchedulerOperation,
    SchedulerSubject,
)
from kvproof.spec.text.identity import Identities

SCHEDULE, LAUNCH, COMPLETE = "schedule()", "launch()", "complete()"  # the calls of a step, as findings name them


@dataclass
class UnderWay:
    """A step that is scheduled and not complete."""

    step: ScheduledStep
    seqs: frozenset[int]  # whose blocks it uses
    flights: list[int]
    is_launched: bool = False
    sampled: dict[int, int] = field(default_factory=dict)  # the token of each sequence that it computes to its end
    over: set[int] = field(default_factory=set)  # sequences that have all their tokens with that


class SchedulerState(Oracle, RuledJudge):
    """An opened scheduler, its requests, and the steps and transfers under way."""

    kinds = SchedulerOperation.kinds()

    config: SchedulerConfig

    def __init__(
        self, subject: SchedulerSubject, config: SchedulerConfig, identities: Identities | None = None
    ) -> None:
        check_adapter(subject, SCHEDULER_CALLS)
        if len(config.kv_groups) > 1 and (config.num_host_blocks or config.transfers):
            raise Unsupported("several KV groups of a scheduler are judged without swap and transfers")
        self.requests: dict[int, ExpectedRequest] = {}
        self.under_way: list[UnderWay] = []  # steps, the oldest first
        self.loading: dict[int, list[int]] = {}  # sequences whose KV is coming, and its flights
        self.sending: dict[int, list[int]] = {}  # sequences, over, whose KV is being sent
        self.without_slot: set[int] = set()  # sequences that have tables, but do not count as running
        self.scheduled_step: ScheduledStep | None = None  # by the last operation
        self.used_by_step: dict[int, ExpectedSequence] = {}  # sequences whose blocks the explained step uses
        self.num_steps = 0
        self.last_step: int | None = None  # after the last arrival: the step by which all requests must be over
        num_flights = num_flights_max(config.num_gpu_blocks + config.num_host_blocks)
        super().__init__(subject, config, identities, num_flights=num_flights)
        self.pending = Pending(self.explainer, num_flights)

    @property
    def is_launched(self) -> bool:
        """Whether every step under way is being executed."""
        return all(under.is_launched for under in self.under_way)

    @property
    def may_schedule(self) -> bool:
        """Whether a step may be scheduled now."""
        return self.is_launched and len(self.under_way) <= self.config.async_steps

    def is_done(self) -> bool:
        """Whether every request is over, and no step or transfer is under way."""
        return not (self.under_way or self.requests or self.loading or self.sending)

    def is_in_flight(self, request: ExpectedRequest) -> bool:
        """Whether a step under way uses blocks of the request."""
        return any(seq.id in under.seqs for under in self.under_way for seq in request.everyone())

    def to_come(self) -> Iterable[int]:
        """The sequences that requests will fork into."""
        return (child for request in self.requests.values() for child in request.to_come)

    def forget(self, request: ExpectedRequest) -> None:
        """A request is over; the subject must not show its sequences any more."""
        del self.requests[request.id]
        for seq in request.everyone():
            del self.seqs[seq.id]
            self.without_slot.discard(seq.id)

    def execute(self) -> None:
        """The worker executes what was scheduled, and every reader reads back."""
        worker, lookahead = self.worker, self.config.lookahead
        if worker.is_pending:
            writes, copies = worker.writes[:], worker.copies[:]
            other = worker.in_other_order(lookahead) if worker.order_may_matter() else None
            worker.execute(lookahead)
            self.explainer.executed(writes)
            self.compare_memory(other, copies)
        worker.fresh.clear()

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
        tables = self.call("total-calls", "observe").tables
        released = [seq for seq in doomed if seq.slot >= 0 and tables.get(seq.id) is None]
        if released:
            self.execute()
        self.observe(context, [*released, *touched, *exchanged])
        for seq in released:
            self.explainer.freed(seq, context)
            seq.status = Status.WAITING
        for seq in exchanged:
            if seq.slot >= 0:
                self.explainer.exchanged(seq, context)
