"""The end of a run in one operation: nothing arrives any more, and steps go on until all is done.

A run that shows that somebody waits for ever is long, and none of its last steps can be left out: the bound on steps is
what is exceeded. Said as one operation, it is as short as what leads up to it.
"""

from collections.abc import Sequence

from kvproof.check.oracle.scheduler.stepping import SchedulerStepping


class Draining(SchedulerStepping):
    """drain."""

    def op_drain(self, tokens: Sequence[int]) -> bool:
        """Stop, if that was not said yet; then schedule, launch and complete, sampling these tokens, until all is over.

        It ends: `schedule` raises when there were more steps than may be.
        """
        if not tokens:
            return False
        self.op_stop()
        num_steps = self.num_steps
        while not self.is_done() and self._go_on(tokens):
            self.scheduled = None
        self.answer = f"{self.num_steps - num_steps} steps"
        return True

    def _go_on(self, tokens: Sequence[int]) -> bool:
        """The next third of a step; what is on its way arrives with the results of one."""
        if not self.is_launched:
            return self.op_launch(tokens if self.config.async_steps else ())
        if self.under_way and self._may_complete():
            return self.op_complete(tokens, (), (), (*self.loading, *self.sending) if self.config.transfers else ())
        return self.op_schedule()
