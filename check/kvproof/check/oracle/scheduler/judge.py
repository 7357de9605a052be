"""The judge of schedulers: drives a scheduler step by step, plays its model, and explains everything that it does.

An operation is a tuple of a name and arguments, as at manager level: `apply` returns False if the operation is not
enabled in the present state, so any subsequence of a run is a run. It returns True if everything was explained, and
raises `Finding` if something cannot be explained. A step is schedule, launch, complete. Requests are added and aborted
between any two of these.
"""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import RuledJudge, enabled_when
from kvproof.check.oracle.lockstep import LockstepJudge
from kvproof.check.oracle.scheduler.arrivals import ArrivalJudge
from kvproof.check.oracle.scheduler.base import SchedulerState
from kvproof.check.oracle.scheduler.completion import CompletionJudge
from kvproof.check.oracle.scheduler.drafts import DraftModel
from kvproof.check.oracle.scheduler.schedule import StepExplainer
from kvproof.check.oracle.scheduler.sessions import SessionJudge
from kvproof.check.oracle.scheduler.step_checks import Sampling, check_step
from kvproof.check.oracle.scheduler.stepping import StepJudge
from kvproof.check.protocol.scheduler import SchedulerConfig, SchedulerSubject
from kvproof.check.protocol.scheduler_operations import SchedulerOperation
from kvproof.spec.text.identity import Identities


class SchedulerJudge(LockstepJudge, RuledJudge):
    """One opened scheduler in lockstep with the specification. scheduler: its requests, and what is under way."""

    kinds = SchedulerOperation.kinds()
    config: SchedulerConfig

    def __init__(
        self, subject: SchedulerSubject, config: SchedulerConfig, identities: Identities | None = None
    ) -> None:
        self.scheduler = scheduler = SchedulerState(subject, config, identities)
        LockstepJudge.__init__(self, scheduler.oracle)
        self.requests, self.under_way, self.host = scheduler.requests, scheduler.under_way, scheduler.host
        self.loading, self.sending, self.without_slot = scheduler.loading, scheduler.sending, scheduler.without_slot
        steps, sampling = StepExplainer(scheduler), Sampling(scheduler)
        self.failed_loads = steps.failed_loads
        drafts = DraftModel(scheduler) if config.speculative_tokens else None
        self.sessions = sessions = SessionJudge(scheduler)
        arrivals, stepping = ArrivalJudge(scheduler, steps, sessions), StepJudge(scheduler, steps, sampling, drafts)
        self._stepping = stepping
        completion = CompletionJudge(scheduler, sampling, drafts, steps.failed_loads, sessions)
        RuledJudge.__init__(self, scheduler.oracle.reply, arrivals, stepping, completion, sessions, self)

    @property
    def last_step(self) -> int | None:
        """After the last arrival: the step by which all requests must be over."""
        return self.scheduler.last_step

    @property
    def moves_kv(self) -> bool:
        """Whether KV comes and goes while steps run."""
        return self.scheduler.moves_kv

    def is_done(self) -> bool:
        """Whether every request is over, and no step or transfer is under way."""
        return self.scheduler.is_done()

    def check_observed(self) -> None:
        """The last step is shown too."""
        super().check_observed()
        check_step(self._stepping.shown)

    def observe_all(self, context: str) -> None:
        """Observe the subject; requests that are over may have released their blocks."""
        self.scheduler.observe_released(context)

    @enabled_when()
    def op_drain(self, tokens: Sequence[int]) -> bool:
        """Stop arrivals, then schedule, launch and complete, sampling these tokens, until every request is over.

        A run in which a request waits for ever is long, because the bound on steps has to be exceeded. As one
        operation it is as short as the operations before it. It ends, since `schedule` raises beyond the bound.
        """
        if not tokens:
            return False
        self.do("stop")
        num_steps = self.scheduler.num_steps
        while not self.scheduler.is_done() and self._continue(tokens):
            pass
        self.reply.text = f"{self.scheduler.num_steps - num_steps} steps"
        return True

    def _continue(self, tokens: Sequence[int]) -> bool:
        """The next part of a step. Transfers arrive with the results of a step."""
        if self.is_enabled("launch"):
            return self.do("launch", tokens if self.config.async_steps else ())
        arrivals = (*self.scheduler.loading, *self.scheduler.sending) if self.config.transfers else ()
        copied = range(len(self.scheduler.host.ready())) if self.scheduler.host else ()
        return self.do("complete", tokens, (), (), arrivals, copied) or self.do("schedule")
