"""What becomes of a request that loses its blocks: it is swapped out, computed again, or ended.

Judged of schedulers that declare `preempts_as_set`. A request with one member is computed again, unless preemption is
set to swap and the host has room for its blocks; so none is ended for lack of room. A request with several members can
only be swapped out, or ended. The host has room for sure if the blocks of the request are unused there when everybody
who leaves in the step is on the host, and before anybody comes back from there.
"""

from collections.abc import Sequence

from kvproof.check.oracle.scheduler.base import SCHEDULE, ExpectedRequest, SchedulerState
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK
from kvproof.spec.text.budgets import SWAP, may_be_computed_again, may_be_swapped_out, may_end_for_lack_of_room
from kvproof.spec.text.state import HOST


def num_blocks_of(request: ExpectedRequest) -> int:
    """How many blocks the tables of a request name."""
    return len({b for seq in request.everyone() for table in seq.tables for b in table if b != NULL_BLOCK})


def judge_swapped_out(state: SchedulerState, request: ExpectedRequest) -> None:
    """A request with one member may be swapped out only where preemption is set to swap."""
    mode = state.config.preemption
    if state.capabilities.preempts_as_set and not may_be_swapped_out(len(request.members), mode == SWAP):
        sentence = f"request {request.id} is swapped out; it has one sequence, which preemption {mode!r} computes again"
        raise Finding("preempted-as-set", sentence, call=SCHEDULE)


def judge_computed_again(state: SchedulerState, requests: Sequence[tuple[ExpectedRequest, int]]) -> None:
    """Where preemption is set to swap, a request is computed again only if the host has no room for its blocks.

    requests: those that are computed again, each with the number of its blocks; all that are swapped out have left.
    """
    if not state.capabilities.preempts_as_set or state.config.preemption != SWAP:
        return
    unused = state.explainer.unused_in(state.state, HOST)
    for request, num_blocks in requests:
        if not may_be_computed_again(True, num_blocks, unused):
            raise Finding(
                "preempted-as-set",
                f"request {request.id} gave up what it had computed; preemption is set to swap, its $observed blocks "
                "may go to the host, and $expected are unused there",
                call=SCHEDULE,
                expected=unused,
                observed=num_blocks,
            )


def judge_ended_for_room(state: SchedulerState, request: ExpectedRequest) -> None:
    """A request that can be computed again is not ended for lack of room."""
    if state.capabilities.preempts_as_set and not may_end_for_lack_of_room(len(request.members)):
        sentence = f"request {request.id} is ended for lack of room, and it can be computed again: it has one sequence"
        raise Finding("preempted-as-set", sentence, call=SCHEDULE)
