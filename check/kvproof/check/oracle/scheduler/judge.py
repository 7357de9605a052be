"""The judge of schedulers: drives a scheduler step by step, plays its model, and explains everything that it does.

An operation is a tuple of a name and arguments, as at manager level: `apply` returns False if the operation is not
enabled in the present state, so any subsequence of a run is a run. It returns True if everything was explained, and
raises `Finding` if something cannot be explained. A step is schedule, launch, complete. Requests are added and aborted
between any two of these.
"""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.scheduler.requests_arriving import Arriving
from kvproof.check.oracle.scheduler.stepping import Stepping
from kvproof.check.protocol.scheduler import ScheduledStep


class SchedulerJudge(Arriving, Stepping):
    """One opened scheduler in lockstep with the specification."""

    @property
    def answer(self) -> str:
        """The answer to the last operation, as text; the text of a step is made only when it is asked for."""
        return self._answer if self.scheduled_step is None else step_text(self.scheduled_step)

    @answer.setter
    def answer(self, text: str) -> None:
        self._answer, self.scheduled_step = text, None

    @enabled_when()
    def op_drain(self, tokens: Sequence[int]) -> bool:
        """Stop arrivals, then schedule, launch and complete, sampling these tokens, until every request is over.

        A run in which a request waits for ever is long, because the bound on steps has to be exceeded. As one
        operation it is as short as the operations before it. It ends, since `schedule` raises beyond the bound.
        """
        if not tokens:
            return False
        self.do("stop")
        num_steps = self.num_steps
        while not self.is_done() and self._continue(tokens):
            pass
        self.answer = f"{self.num_steps - num_steps} steps"
        return True

    def _continue(self, tokens: Sequence[int]) -> bool:
        """The next part of a step. Transfers arrive with the results of a step."""
        if self.is_enabled("launch"):
            return self.do("launch", tokens if self.config.async_steps else ())
        arrivals = (*self.loading, *self.sending) if self.config.transfers else ()
        return self.do("complete", tokens, (), (), arrivals) or self.do("schedule")


def step_text(step: ScheduledStep) -> str:
    """A step as text."""
    parts = [f"sequence {c.seq}: {c.start} to {c.stop}" + (f", hit {c.hit}" if c.hit else "") for c in step.chunks]
    parts += [f"sequence {load.seq}: loads {load.hit} to {load.stop}" for load in step.loads]
    for name in ("swap_in", "swap_out", "copies", "ignored", "failed"):
        if getattr(step, name):
            parts.append(f"{name.replace('_', ' ')} {list(getattr(step, name))}")
    return "; ".join(parts) or "nothing"
