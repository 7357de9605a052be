"""One opened scheduler, the truth it was told, and the specification beside it.

The judge of the loop is the judge of the manager with another subject: observing, holding the frame, the pool's own
account and reading back are the same. What differs is that one call, `schedule`, does many operations.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import cast

from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.manager.admitting import Admitting
from kvproof.check.oracle.manager.base import GROWING, check_kv_groups
from kvproof.check.oracle.manager.growing import Growing
from kvproof.check.oracle.manager.stepping import Stepping
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.oracle.scheduler.in_flight import Pending, num_flights_max
from kvproof.check.oracle.scheduler.requests import Request
from kvproof.check.protocol.adapter_check import SCHEDULER_CALLS, check_adapter, check_observation
from kvproof.check.protocol.manager import ManagerSubject, Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig, SchedulerSubject, Step
from kvproof.spec.text.identity import Identities


@dataclass
class UnderWay:
    """A step that is scheduled and not complete."""

    step: Step
    seqs: frozenset[int]  # whose blocks it uses
    flights: list[int]
    is_launched: bool = False
    sampled: dict[int, int] = field(default_factory=dict)  # the token of each sequence that it computes to its end
    over: set[int] = field(default_factory=set)  # sequences that have all their tokens with that


class SchedulerJudgeBase(Admitting, Growing, Stepping):
    """The state of the judge."""

    def __init__(
        self, subject: SchedulerSubject, config: SchedulerConfig, identities: Identities | None = None
    ) -> None:
        check_adapter(subject, SCHEDULER_CALLS)
        check_kv_groups(config, subject.capabilities)
        if len(config.kv_groups) > 1 and (config.num_host_blocks or config.transfers):
            raise Unsupported("several KV groups of a scheduler are judged without swap and transfers")
        self.subject = cast(ManagerSubject, subject)  # of whose calls only `open` and `observe` are used
        self.config: SchedulerConfig = config
        self.capabilities = subject.capabilities
        self.identities = identities or Identities()
        self.seqs: dict[int, ExpectedSequence] = {}
        self.groups: dict[int, Group] = {}
        self.requests: dict[int, Request] = {}
        self.under_way: list[UnderWay] = []  # steps, the oldest first
        self.loading: dict[int, list[int]] = {}  # sequences whose KV is coming, and its flights
        self.sending: dict[int, list[int]] = {}  # sequences, over, whose KV is being sent
        self.apart: set[int] = set()  # sequences that have tables, and no place among those that run
        self.scheduled: Step | None = None  # by the last operation
        self.using: dict[int, ExpectedSequence] = {}  # sequences whose blocks the step that is being explained uses
        self.num_steps = 0
        self.last_step: int | None = None  # when no request arrives any more: by then all must be over
        self.now, self.preempted_in_step, self.phase = 0, False, GROWING
        self.coverage: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.answer = ""  # of the last operation, for people
        self._open()
        first = self._call("total-calls", "observe")
        check_observation(first, len(config.kv_groups))
        num_flights = num_flights_max(config.num_gpu_blocks + config.num_host_blocks)
        self.explainer = Explainer(config, first, self.identities, self.coverage, num_flights)
        self.pending = Pending(self.explainer, num_flights)
        self.worker, self.state = self.explainer.worker, self.explainer.state
        self.explainer.compare_pool("open", self._is_at_rest)

    @property
    def is_launched(self) -> bool:
        """Whether every step under way is being executed."""
        return all(under.is_launched for under in self.under_way)

    @property
    def may_schedule(self) -> bool:
        """Whether a step may be scheduled now."""
        return self.is_launched and len(self.under_way) <= self.config.async_steps

    def _is_in_flight(self, request: Request) -> bool:
        """Whether a step under way uses blocks of the request."""
        return any(seq.id in under.seqs for under in self.under_way for seq in request.everyone())

    def _execute(self) -> None:
        """The worker does what was scheduled, and everyone reads back."""
        worker, lookahead = self.worker, self.config.lookahead
        if worker.is_pending:
            writes, copies = worker.writes[:], worker.copies[:]
            other = worker.in_other_order(lookahead) if worker.order_may_matter() else None
            worker.execute(lookahead)
            self.explainer.executed(writes)
            self._compare_memory(other, copies)
        worker.fresh.clear()

    def _forget(self, request: Request) -> None:
        """A request is over; nothing of it is to be seen any more."""
        del self.requests[request.id]
        for seq in request.everyone():
            del self.seqs[seq.id]
            self.apart.discard(seq.id)
