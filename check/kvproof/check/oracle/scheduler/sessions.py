"""Requests that go on: when a session has generated its tokens, it keeps its blocks and waits for more of its prompt.

The next input begins with what the session has, without the token that was sampled last: its KV was never computed. An
input that comes while the session generates is kept until then. A session that is closed ends by itself: at once if it
waits for an input, else when it has generated its tokens and no input is left.

While a session waits, its blocks are in use, and it does not count among those who run; with its next input it waits to
be let in, with blocks or without them. So in configurations with sessions nothing is judged of the order in which
requests are let in, and of who is left waiting. The total of all inputs and generated tokens is less than the model's
length: the judge, as the user, keeps to that.
"""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.scheduler.base import ExpectedRequest, SchedulerState, unfinished

NUM_INPUTS_MAX = 3  # of one session, at a time


class SessionJudge:
    """Does the operations feed and close, and what a session does when it has its tokens."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self.scheduler, self.oracle, self.coverage = scheduler, scheduler.oracle, scheduler.coverage
        self.config, self.call = scheduler.config, scheduler.call

    def open_sessions(self) -> list[int]:
        """The requests that may get another input, or be closed."""
        return [one.id for one in unfinished(self.scheduler.requests) if one.is_session and not one.is_closed]

    def num_tokens_left(self, request_id: int) -> int:
        """How many tokens the inputs to come of a session may have and generate, in all."""
        request = self.scheduler.requests[request_id]
        seq = request.members[0]
        num_planned = sum([len(tokens) + max_tokens for tokens, max_tokens in request.inputs])
        num_known = len(seq.tokens) + (0 if request.is_idle else request.num_left(seq))
        return self.config.max_model_len - 1 - num_known - num_planned

    @enabled_when(lambda judge: judge.is_asked(), about=lambda judge: judge.open_sessions())
    def op_feed(self, request_id: int, tokens: Sequence[int], max_tokens: int) -> bool:
        """The next input of a session arrives: tokens of its prompt, and how many it generates after them."""
        request = self.scheduler.requests[request_id]
        num_left = self.num_tokens_left(request_id)
        if not tokens or len(tokens) + max_tokens > num_left or len(request.inputs) >= NUM_INPUTS_MAX:
            return False
        self.call("total-calls", "feed", request_id, list(tokens), max_tokens)
        request.inputs.append((tuple(tokens), max_tokens))
        if request.is_idle:
            self._go_on(request)
        else:
            self.coverage["input kept until the session has its tokens"] += 1
        self.oracle.observe(f"feed({request_id})")
        return True

    @enabled_when(lambda judge: judge.is_asked(), about=lambda judge: judge.open_sessions())
    def op_close(self, request_id: int) -> bool:
        """A session gets no further input."""
        self.close(self.scheduler.requests[request_id])
        return True

    def is_asked(self) -> bool:
        """Whether the engine takes inputs now: between steps, and not after `stop`."""
        return self.config.sessions and self.scheduler.last_step is None and self.scheduler.may_schedule

    def close(self, request: ExpectedRequest) -> None:
        """A session gets no further input: if it waits for one, it is over."""
        context = f"close({request.id})"
        request.is_closed = True
        self.call("total-calls", "close", request.id)
        if not request.is_idle:
            return
        self.scheduler.forget(request)
        self.oracle.observe(context)
        for seq in request.members:
            if seq.slot >= 0:
                self.scheduler.explainer.freed(seq, context)
        self.scheduler.settle(context)

    def close_all(self) -> None:
        """No session gets a further input."""
        for request_id in self.open_sessions():
            self.close(self.scheduler.requests[request_id])

    def go_on(self, over: Sequence[ExpectedSequence]) -> list[ExpectedSequence]:
        """These have all their tokens: those of sessions wait for an input, or begin with it. Returns the others."""
        ended = []
        for seq in over:
            request = self.scheduler.requests[seq.group.id]
            if not request.is_session or (request.is_closed and not request.inputs):
                ended.append(seq)
                continue
            request.is_idle = True
            if seq.slot >= 0:
                self.scheduler.without_slot.add(seq.id)
            self.coverage["session waits for an input"] += 1
            if request.inputs:
                self._go_on(request)
        return ended

    def _go_on(self, request: ExpectedRequest) -> None:
        """A session begins with its next input: the token that was sampled last is dropped."""
        (tokens, max_tokens), request.inputs = request.inputs[0], request.inputs[1:]
        seq, identities = request.members[0], self.oracle.identities
        seq.drop_last_token(identities)
        seq.grow_all(identities, tokens)
        request.is_idle = False
        request.num_prompt, request.max_tokens = len(seq.tokens), max_tokens
        seq.num_prompt = seq.num_sent = len(seq.tokens)
        self.coverage["session went on" + " without blocks" * (seq.status is Status.WAITING)] += 1
