"""Operations by which requests come and go: add, abort, and the end of arrivals."""

from collections.abc import Sequence
from typing import Any

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.expected import Status
from kvproof.check.oracle.firing import NUM_SEQS_MAX
from kvproof.check.oracle.scheduler.base import SchedulerState
from kvproof.check.oracle.scheduler.requests import ExpectedRequest, num_gains_max, unfinished
from kvproof.spec.text.budgets import num_steps_max
from kvproof.spec.text.identity import Image, Key


class Arriving(SchedulerState):
    """The operations add, abort and stop."""

    @enabled_when(lambda judge: judge.last_step is None)
    def op_add(
        self,
        request_id: int,
        seq_ids: Sequence[int],
        tokens: Sequence[int],
        max_tokens: int,
        key: Sequence[Any] = (),
        images: Sequence[Sequence[Any]] = (),
        encoder: Sequence[Any] | None = None,
        elsewhere: tuple[int, bool] = (0, False),
    ) -> bool:
        """A request arrives: sequences with one prompt. encoder: its encoder sequence, and that one's tokens.

        elsewhere: for how many tokens there is KV to load, and whether its own KV is sent when it is over.
        """
        ids = [*seq_ids, *([encoder[0]] if encoder else [])]
        if request_id in self.requests or not tokens or not seq_ids or max_tokens < 1:
            return False
        known = {*self.seqs, *self.to_come()}
        is_too_long = len(tokens) > self.num_tokens_max
        if is_too_long or any(i in known for i in ids) or len(known) + len(ids) > NUM_SEQS_MAX:
            return False
        request, whole = ExpectedRequest(request_id, len(tokens), max_tokens), Key(*key)
        pictures = tuple(Image(*image) for image in images)
        num_members = 1 if self.capabilities.forks_itself else len(seq_ids)
        request.to_come += seq_ids[num_members:]
        for seq_id in seq_ids[:num_members]:
            request.members.append(self.new_sequence(seq_id, request, whole, pictures, tokens))
        if encoder:
            request.encoder = self.new_encoder(encoder[0], request, encoder[1])
        self.requests[request_id] = request
        if self.config.transfers:
            num_tokens = min(elsewhere[0], len(tokens)) // self.config.block_size * self.config.block_size
            request.is_sent = elsewhere[1]
            self.call("total-calls", "elsewhere", request_id, num_tokens, request.is_sent)
        encoder_prompt = (encoder[0], list(encoder[1])) if encoder else None
        arguments = (request_id, list(seq_ids), list(tokens), whole, pictures, max_tokens, encoder_prompt)
        self.call("total-calls", "add_request", *arguments)
        return True

    @enabled_when(about=lambda judge: [request.id for request in unfinished(judge.requests)])
    def op_abort(self, request_id: int) -> bool:
        """The user of a request leaves. Blocks that the step under way uses stay until it completes."""
        request = self.requests[request_id]
        context, first = f"abort({request_id})", request.members[0]
        self.coverage[f"aborted while {first.status.value}"] += 1
        if first.status is Status.RUNNING and first.computed < request.num_prompt:
            self.coverage["aborted within its prompt"] += 1
        if self.is_in_flight(request):
            self.coverage["aborted in flight"] += 1
        self.call("total-calls", "abort", request_id)
        if self.under_way and first.status is not Status.WAITING:
            request.is_doomed = True
            self.observe_released(context)
        else:
            self.forget(request)
            self.observe(context)
            for seq in request.everyone():
                if seq.status is not Status.WAITING:
                    self.explainer.freed(seq, context)
        self.settle(context)
        return True

    @enabled_when(lambda judge: judge.last_step is None)
    def op_stop(self) -> bool:
        """No request arrives any more, and nothing forks: all must be over within a bounded number of steps."""
        config, num_gains = self.config, num_gains_max(unfinished(self.requests))
        bound = num_steps_max(num_gains, config.max_model_len, config.max_num_batched_tokens, config.async_steps)
        self.last_step = self.num_steps + bound
        self.answer = f"at most {bound} more steps"
        return True
