"""Operations of a scheduler between its steps: requests arrive and are aborted, arrivals stop, caches are reset."""

from collections.abc import Sequence
from typing import Any

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.expected import Status, lie_apart
from kvproof.check.oracle.scheduler.base import ExpectedRequest, SchedulerState, num_gains_max, unfinished
from kvproof.check.oracle.scheduler.encoder_outputs import are_possible
from kvproof.check.oracle.scheduler.schedule import StepExplainer
from kvproof.check.oracle.scheduler.sessions import SessionJudge
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.scheduler import ABORTED
from kvproof.spec.text import operations
from kvproof.spec.text.budgets import PAUSED_ALL, PAUSED_NEW, PRIORITY, num_steps_max, prompt_tokens_in_step
from kvproof.spec.text.identity import Image, Key


class ArrivalJudge:
    """Does the operations add, abort, stop, pause, go_on and reset_caches."""

    def __init__(self, scheduler: SchedulerState, steps: StepExplainer, sessions: SessionJudge) -> None:
        self.scheduler, self.oracle, self.config = scheduler, scheduler.oracle, scheduler.config
        self.explainer, self.state, self.capabilities = scheduler.explainer, scheduler.state, scheduler.capabilities
        self.coverage, self.seqs, self.call = scheduler.coverage, scheduler.seqs, scheduler.call
        self.steps, self.sessions = steps, sessions
        self.lengths: dict[str, int] = {}  # of images, by name

    @enabled_when(lambda judge: judge.scheduler.last_step is None)
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
        priority: int = 0,
        is_session: bool = False,
    ) -> bool:
        """A request arrives: sequences with one prompt. encoder: its encoder sequence, and that one's tokens.

        elsewhere: for how many tokens there is KV to load, and whether its own KV is sent when it is over.
        priority: 0 is served first; used if requests are let in by priority. is_session: it goes on with inputs.
        """
        ids = [*seq_ids, *([encoder[0]] if encoder else [])]
        if request_id in self.scheduler.requests or not tokens or not seq_ids or max_tokens < 1:
            return False
        known = {*self.seqs, *self.scheduler.to_come()}
        is_too_long = len(tokens) > self.oracle.num_tokens_max
        if is_too_long or any(i in known for i in ids) or len(known) + len(ids) > self.oracle.num_seqs_max:
            return False
        request, whole = ExpectedRequest(request_id, len(tokens), max_tokens), Key(*key)
        pictures = tuple(Image(*image) for image in images)
        if not lie_apart(pictures, len(tokens)):
            return False
        if self.capabilities.encodes_images and pictures:
            if not are_possible(pictures, len(tokens), self.config.encoder_room, self.lengths):
                return False
            self.lengths |= {image.name: image.length for image in pictures}
        num_members = 1 if self.capabilities.forks_itself else len(seq_ids)
        request.to_come += seq_ids[num_members:]
        for seq_id in seq_ids[:num_members]:
            request.members.append(self.oracle.new_sequence(seq_id, request, whole, pictures, tokens))
        if encoder:
            request.encoder = self.oracle.new_encoder(encoder[0], request, encoder[1])
        self.scheduler.requests[request_id] = request
        self.scheduler.num_arrived += 1
        request.arrival = self.scheduler.num_arrived
        if self.config.policy == PRIORITY:
            request.priority = priority
            self.call("total-calls", "prioritize", request_id, priority)
        if self.config.transfers:
            num_most = len(tokens) - self.oracle.has_states  # what reads a state is not computed again
            num_tokens = min(elsewhere[0], num_most) // self.config.block_size * self.config.block_size
            request.is_sent = elsewhere[1]
            self.call("total-calls", "elsewhere", request_id, num_tokens, request.is_sent)
        if self.config.sessions and is_session:
            request.is_session = True
            self.call("total-calls", "open_session", request_id)
        encoder_prompt = (encoder[0], list(encoder[1])) if encoder else None
        arguments = (request_id, list(seq_ids), list(tokens), whole, pictures, max_tokens, encoder_prompt)
        self.call("total-calls", "add_request", *arguments)
        return True

    @enabled_when(about=lambda judge: [request.id for request in unfinished(judge.scheduler.requests)])
    def op_abort(self, request_id: int) -> bool:
        """The user of a request leaves. Blocks that the step under way uses stay until it completes."""
        request = self.scheduler.requests[request_id]
        context, first = f"abort({request_id})", request.members[0]
        self.coverage[f"aborted while {first.status.value}"] += 1
        if first.status is Status.RUNNING and first.computed < request.num_prompt:
            self.coverage["aborted within its prompt"] += 1
        if self.scheduler.is_in_flight(request):
            self.coverage["aborted in flight"] += 1
        if self.config.sends_aborted and request.is_sent and first.slot >= 0:
            self.scheduler.begin_send(first, context)
            if self.scheduler.under_way:
                self.scheduler.aborted_in[first.id] = self.scheduler.under_way[-1]
            self.coverage["send of an aborted request" + " that is loaded" * (first.id in self.scheduler.loading)] += 1
        else:
            self.scheduler.hold_until_complete(request, context)
        self.scheduler.ending[request_id] = (ABORTED,)
        request.is_lingering, request.aborted_after = self.capabilities.aborts_late, self.scheduler.num_steps
        self.call("total-calls", "abort", request_id)
        self.scheduler.judge_ends(context)
        if request.is_lingering or (self.scheduler.under_way and first.status is not Status.WAITING):
            request.is_doomed = True
            self.scheduler.observe_released(context)
        else:
            self.scheduler.forget(request)
            self.oracle.observe(context)
            for seq in request.everyone():
                if seq.status is not Status.WAITING:
                    self.explainer.freed(seq, context)
        self.scheduler.judge_sends(context)
        self.scheduler.settle(context)
        return True

    @enabled_when(lambda judge: judge.scheduler.last_step is None)
    def op_stop(self) -> bool:
        """No request arrives, forks, or is preempted by a reset: all must be over within a bounded number of steps.

        A scheduler that is paused goes on, and sessions get no further input.
        """
        self.sessions.close_all()
        if self.scheduler.paused:
            self._pause("")
        alive = [one for one in self.scheduler.requests.values() if one.is_lingering or not one.is_doomed]
        config, num_gains = self.config, num_gains_max(alive)
        num_tokens = config.max_num_batched_tokens // config.partial_prefills
        num_tokens = prompt_tokens_in_step(max(1, num_tokens), config.long_prefill_threshold)
        bound = num_steps_max(num_gains, config.max_model_len, num_tokens, config.async_steps)
        self.scheduler.last_step = self.scheduler.num_steps + bound
        self.oracle.reply.text = f"at most {bound} more steps"
        return True

    @enabled_when(lambda judge: judge.may_pause())
    def op_pause(self, serves_nobody: bool = False) -> bool:
        """The scheduler is paused: nobody is let in, or nobody is served. It may be paused already."""
        self._pause(PAUSED_ALL if serves_nobody else PAUSED_NEW)
        self.coverage[f"paused, {'nobody is served' if serves_nobody else 'nobody is let in'}"] += 1
        return True

    @enabled_when(lambda judge: bool(judge.scheduler.paused) and judge.may_pause())
    def op_go_on(self) -> bool:
        """The scheduler is not paused any more."""
        self._pause("")
        return True

    def may_pause(self) -> bool:
        """Whether the engine can pause its scheduler now; after `stop` all requests are to end, and it does not."""
        return self.config.pauses and self.scheduler.last_step is None and self.scheduler.may_schedule

    def _pause(self, state: str) -> None:
        self.call("total-calls", "pause", state)
        self.scheduler.paused = state

    def may_reset(self) -> bool:
        """Whether the engine can reset its caches now; while steps are under way only if the subject declares it."""
        if self.config.resets:
            return self.scheduler.may_schedule
        return self.scheduler.host is not None and not self.scheduler.under_way

    @enabled_when(lambda judge: judge.may_reset())
    def op_reset_caches(self, preempts: bool = False, keeps_host: bool = False) -> bool:
        """Drop what is cached on the device, unless blocks are in use, and all that is in host memory.

        preempts: every running request is preempted first; not while a request that loads, or has loaded, waits or is
        sent, and not after `stop`, since a scheduler whose work is undone again and again cannot end. keeps_host: not
        what is in host memory.
        """
        scheduler = self.scheduler
        if preempts and not scheduler.may_preempt_all():
            return False
        if keeps_host and not (self.config.resets and scheduler.host):
            return False
        context = "reset_caches()"
        done = self.call("total-calls", "reset_caches", preempts, *([True] if keeps_host else []))
        check_answer("reset_caches", done, bool)
        self.oracle.reply.text = "reset" if done else "refused on the device"
        all_requests = [*unfinished(scheduler.requests)] if preempts else []
        running = [request for request in all_requests if request.members[0].status is Status.RUNNING]
        scheduler.observe_released(context, [request.members[0] for request in running])
        for request in running:
            scheduler.lose_sampled(request)
            self.steps.preempt(request, context)
        if not (scheduler.under_way or scheduler.moves_kv):
            self.oracle.judge_reset(done, context)
        if done:
            self.explainer.run(operations.reset_cache(self.state), context)
        self.scheduler.settle(context)
        self.coverage["reset with copies under way"] += scheduler.is_transferring
        self.coverage["reset, and those who run begin again"] += bool(running)
        return True
