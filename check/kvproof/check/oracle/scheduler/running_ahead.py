"""Schedulers that run ahead: they launch a step before they process the results of the one before.

The results of a step go back to such a scheduler only when a newer step is launched, as long as any request can be
scheduled. A request that leaves the GPU while a step samples its token loses that token, and it is sampled again.
"""

from kvproof.check.oracle.scheduler.base import SchedulerState
from kvproof.check.oracle.scheduler.requests import ExpectedRequest, unfinished


def may_complete(state: SchedulerState) -> bool:
    """Whether the results of the oldest step may go back now."""
    runs_ahead = state.capabilities.runs_ahead and state.config.async_steps
    return not runs_ahead or len(state.under_way) > 1 or not any(unfinished(state.requests))


def drop_sampled(state: SchedulerState, request: ExpectedRequest) -> None:
    """The request leaves the GPU: the tokens that steps under way sample for it are lost."""
    if not state.capabilities.runs_ahead:
        return
    for under in reversed(state.under_way):
        for seq in request.members:
            if under.sampled.pop(seq.id, None) is not None:
                under.over.discard(seq.id)
                seq.drop_last_token()
                state.coverage["token dropped"] += 1
