"""How many steps a scheduler may take after the last request has arrived.

A step *gains* if it samples a token or ends a request. Between two gains a scheduler may need steps without one:

- at most `ceil(L / B)` that compute chunks of a prompt, where L is the greatest length of a sequence in tokens and B is
  the token budget. A prompt that is begun and dropped again was dropped for another one that gained, or for itself;
- one that only preempts, because the group that should continue cannot, not even alone;
- one that only swaps out.

So G gains take at most `G * (ceil(L / B) + 2)` steps, and one more step finds that all is done. G is at most the number
of tokens still to be sampled plus the number of requests, since nothing forks and nothing arrives. The bound assumes
that a preempted request does not come back before another one gained. That holds if requests are served in the order of
arrival. A scheduler with another order that exceeds the bound lets a request wait without a reason known here.

If steps may be under way when the next one is scheduled, a step may be empty because every request waits for them: at
most `async_steps` empty steps after each step that is not empty.
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
