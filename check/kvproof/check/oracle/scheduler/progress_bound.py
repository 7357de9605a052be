"""How many steps a scheduler may take once no request arrives any more.

Say that a step *gains* when it samples a token or ends a request. Between two gains a scheduler may need steps
without one:

- at most `ceil(L / B)` that compute chunks of a prompt, L tokens being the longest a sequence can get and B the token
  budget. A prompt that is begun and dropped again was dropped for another that gained, or for itself;
- one that only preempts, because the group that should go on cannot, not even alone;
- one that only swaps out.

So G gains take at most `G * (ceil(L / B) + 2)` steps, and one more finds that all is done. G is at most the number of
tokens still to be sampled, plus the number of requests: it counts everything that can still happen, since nobody forks
and nobody arrives. The bound takes for granted that whoever is preempted does not come back before another gained.
That is so where requests are served in the order of arrival; a scheduler that serves in another order and exceeds the
bound makes somebody wait for a reason that this should have told.

Where steps may be under way when the next one is scheduled, a step may be empty because all that could go on is waiting
for them: at most as many empty ones after each that is not.
"""

from collections.abc import Iterable

from kvproof.check.oracle.scheduler.requests import Request
from kvproof.check.protocol.scheduler import SchedulerConfig


def num_steps_max(requests: Iterable[Request], config: SchedulerConfig) -> int:
    """Steps within which all these requests must be over."""
    num_gains = 0
    for request in requests:
        own = 1 + sum(max(0, request.num_left(seq)) for seq in request.members)
        num_gains += own + len(request.to_come) * (1 + request.max_tokens)
    num_chunks = -(-config.max_model_len // config.max_num_batched_tokens)
    return (num_gains * (num_chunks + 2) + 1) * (1 + config.async_steps) + config.async_steps
