"""The judge of schedulers: drives a scheduler step by step, plays its model, and explains everything that it does.

An operation is a tuple of a name and arguments, as at manager level: `apply` returns False if the operation is not
enabled in the present state, so any subsequence of a run is a run. It returns True if everything was explained, and
raises `Finding` if something cannot be explained. A step is schedule, launch, complete. Requests are added and aborted
between any two of these.
"""

from collections.abc import Sequence
from typing import Any

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.expected import Status
from kvproof.check.oracle.scheduler.base import ExpectedRequest, num_gains_max, unfinished
from kvproof.check.oracle.scheduler.stepping import Stepping
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.scheduler import ABORTED, HostStore, Load, ScheduledStep
from kvproof.spec.text import operations
from kvproof.spec.text.budgets import PRIORITY, num_steps_max, prompt_tokens_in_step
from kvproof.spec.text.identity import Image, Key


class SchedulerJudge(Stepping):
    """One opened scheduler in lockstep with the specification."""

    @property
    def answer(self) -> str:
        """The answer to the last operation, as text; the text of a step is made only when it is asked for."""
        return self._answer if self.scheduled_step is None else step_text(self.scheduled_step)

    @answer.setter
    def answer(self, text: str) -> None:
        self._answer, self.scheduled_step = text, None

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
        priority: int = 0,
    ) -> bool:
        """A request arrives: sequences with one prompt. encoder: its encoder sequence, and that one's tokens.

        elsewhere: for how many tokens there is KV to load, and whether its own KV is sent when it is over.
        priority: 0 is served first; used if requests are let in by priority.
        """
        ids = [*seq_ids, *([encoder[0]] if encoder else [])]
        if request_id in self.requests or not tokens or not seq_ids or max_tokens < 1:
            return False
        known = {*self.seqs, *self.to_come()}
        is_too_long = len(tokens) > self.num_tokens_max
        if is_too_long or any(i in known for i in ids) or len(known) + len(ids) > self.num_seqs_max:
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
        self.num_arrived += 1
        request.arrival = self.num_arrived
        if self.config.policy == PRIORITY:
            request.priority = priority
            self.call("total-calls", "prioritize", request_id, priority)
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
        if self.config.sends_aborted and request.is_sent and first.slot >= 0:
            self.sending[first.id] = self.pending.launch([first], context)
            if self.under_way:
                self.aborted_in[first.id] = self.under_way[-1]
            self.coverage["send of an aborted request" + " that is loaded" * (first.id in self.loading)] += 1
        self.hold_until_complete(request, context)
        self.ending[request_id] = (ABORTED,)
        self.call("total-calls", "abort", request_id)
        self.judge_ends(context)
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
        """No request arrives, forks, or is preempted by a reset: all must be over within a bounded number of steps."""
        config, num_gains = self.config, num_gains_max(unfinished(self.requests))
        num_tokens = config.max_num_batched_tokens // config.partial_prefills
        num_tokens = prompt_tokens_in_step(max(1, num_tokens), config.long_prefill_threshold)
        bound = num_steps_max(num_gains, config.max_model_len, num_tokens, config.async_steps)
        self.last_step = self.num_steps + bound
        self.answer = f"at most {bound} more steps"
        return True

    @enabled_when(lambda judge: judge.host is not None and not judge.under_way)
    def op_reset_caches(self, preempts: bool = False) -> bool:
        """Drop what is cached on the device, unless blocks are in use, and all that is in host memory.

        preempts: every running request is preempted first; not while a request that loads, or has loaded, waits, and
        not after `stop`, since a scheduler whose work is undone again and again cannot end.
        """
        if preempts and (self.loading or self.without_slot or self.last_step is not None):
            return False
        context = "reset_caches()"
        done = self.call("total-calls", "reset_caches", preempts)
        check_answer("reset_caches", done, bool)
        self.answer = "reset" if done else "refused on the device"
        all_requests = self.requests.values() if preempts else ()
        running = [request for request in all_requests if request.members[0].status is Status.RUNNING]
        self.observe(context, [request.members[0] for request in running])
        for request in running:
            self.step_explainer.preempt(request, context)
        if done:
            self.explainer.run(operations.reset_cache(self.state), context)
        self.settle(context)
        self.coverage["reset with copies under way"] += bool(self.is_transferring)
        return True

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
        copied = range(len(self.host.ready())) if self.host else ()
        return self.do("complete", tokens, (), (), arrivals, copied) or self.do("schedule")


def pairs_text(copy: Load | HostStore) -> str:
    """The job and the (source, target) pairs of a copy to or from host memory; empty for other loads."""
    pairs = ", ".join(f"{source} -> {target}" for source, target in copy.pairs)
    return f" (copy {copy.job}: {pairs})" if copy.pairs else ""


def step_text(step: ScheduledStep) -> str:
    """A step as text."""
    parts = [f"sequence {c.seq}: {c.start} to {c.stop}" + (f", hit {c.hit}" if c.hit else "") for c in step.chunks]
    parts += [f"sequence {load.seq}: loads {load.hit} to {load.stop}{pairs_text(load)}" for load in step.loads]
    parts += [f"store{pairs_text(store)}" for store in step.stores]
    parts += [f"waits for copy {job}" for job in step.flushes]
    for name in ("swap_in", "swap_out", "copies", "ignored", "failed"):
        if getattr(step, name):
            parts.append(f"{name.replace('_', ' ')} {list(getattr(step, name))}")
    return "; ".join(parts) or "nothing"
