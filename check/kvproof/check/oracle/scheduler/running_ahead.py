"""Schedulers that run ahead: a step is launched before the results of the one before are looked at, without exception.

Such a scheduler prepares a step, launches it, and only then takes the tokens of the step before. So the results of a
step go back only when a newer one is launched, as long as anybody is there to be scheduled; and who leaves the GPU
while a step samples its token loses that token: nobody has looked at it, and it is sampled anew.
"""

from kvproof.check.oracle.scheduler.base import SchedulerJudgeBase
from kvproof.check.oracle.scheduler.requests import Request, unfinished


class Ahead(SchedulerJudgeBase):
    """What differs for a subject that `runs_ahead`."""

    def _may_complete(self) -> bool:
        """Whether the results of the oldest step may go back now."""
        runs_ahead = self.capabilities.runs_ahead and self.config.async_steps
        return not runs_ahead or len(self.under_way) > 1 or not any(unfinished(self.requests))

    def _drop_ahead(self, request: Request) -> None:
        """The request leaves: what a step under way samples of it is not known to anybody."""
        if not self.capabilities.runs_ahead:
            return
        for under in reversed(self.under_way):
            for seq in request.members:
                if under.sampled.pop(seq.id, None) is not None:
                    under.over.discard(seq.id)
                    seq.drop_last_token()
                    self.coverage["token dropped"] += 1
