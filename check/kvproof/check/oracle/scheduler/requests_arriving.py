"""Requests come and go: add, abort, and the end of arrivals."""

from collections.abc import Sequence
from typing import Any

from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.firing import NUM_ENTRIES_MAX, NUM_SEQS_MAX
from kvproof.check.oracle.scheduler.progress_bound import num_steps_max
from kvproof.check.oracle.scheduler.requests import Request, unfinished
from kvproof.check.oracle.scheduler.self_forking import Forking
from kvproof.spec.text.identity import Image, Key


class Arriving(Forking):
    """add, abort, stop."""

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
        """A request arrives: sequences with one prompt, perhaps with an encoder (sequence, tokens).

        elsewhere: for how many tokens there is KV to load, and whether its own is sent when it is over.
        """
        ids = [*seq_ids, *([encoder[0]] if encoder else [])]
        too_long = len(tokens) > (NUM_ENTRIES_MAX - 8) * self.config.block_size
        if self.last_step is not None or request_id in self.requests or not tokens or not seq_ids or max_tokens < 1:
            return False
        known = {*self.seqs, *self._to_come()}
        if too_long or any(i in known for i in ids) or len(known) + len(ids) > NUM_SEQS_MAX:
            return False
        request, whole = Request(request_id, len(tokens), max_tokens), Key(*key)
        pictures = tuple(Image(*image) for image in images)
        num_members = 1 if self.capabilities.forks_itself else len(seq_ids)
        request.to_come += seq_ids[num_members:]
        for seq_id in seq_ids[:num_members]:
            request.members.append(self._new_sequence(seq_id, request, whole, pictures, tokens))
        if encoder:
            request.encoder = self._new_encoder(encoder[0], request, encoder[1])
        self.requests[request_id] = request
        if self.config.transfers:
            num_tokens = min(elsewhere[0], len(tokens)) // self.config.block_size * self.config.block_size
            request.is_sent = elsewhere[1]
            self._call("total-calls", "elsewhere", request_id, num_tokens, request.is_sent)
        told = (encoder[0], list(encoder[1])) if encoder else None
        arguments = (request_id, list(seq_ids), list(tokens), whole, pictures, max_tokens, told)
        self._call("total-calls", "add_request", *arguments)
        return True

    def op_abort(self, request_id: int) -> bool:
        """The user of a request leaves. What the step under way uses stays until it completes."""
        request = self.requests.get(request_id)
        if request is None or request.is_doomed or not self.capabilities.aborts:
            return False
        context, first = f"abort({request_id})", request.members[0]
        self.coverage[f"aborted while {first.status.value}"] += 1
        if first.status is Status.RUNNING and first.computed < request.num_prompt:
            self.coverage["aborted within its prompt"] += 1
        if self._is_in_flight(request):
            self.coverage["aborted in flight"] += 1
        self._call("total-calls", "abort", request_id)
        if self.under_way and first.status is not Status.WAITING:
            request.is_doomed = True
            self._given_up(context)
        else:
            self._forget(request)
            self._observe(context)
            for seq in request.everyone():
                if seq.status is not Status.WAITING:
                    self.explainer.freed(seq, context)
        self._settle(context)
        return True

    def _given_up(self, context: str, touched: Sequence[ExpectedSequence] = ()) -> None:
        """Observe. A request that is over while a step uses its blocks may give them up now or later.

        A step that is scheduled will be executed, whoever is over. Where somebody of it goes before it is launched, it
        is executed while its tables are known: what is in flight is held, so that later comes to the same.
        """
        doomed = [seq for request in self.requests.values() if request.is_doomed for seq in request.everyone()]
        tables = self._call("total-calls", "observe").tables
        gone = [seq for seq in doomed if seq.slot >= 0 and tables.get(seq.id) is None]
        if gone:
            self._execute()
        self._observe(context, [*gone, *touched])
        for seq in gone:
            self.explainer.freed(seq, context)
            seq.status = Status.WAITING

    def op_stop(self) -> bool:
        """No request arrives any more, and nobody forks: within so many steps all must be over."""
        if self.last_step is not None:
            return False
        bound = num_steps_max(unfinished(self.requests), self.config)
        self.last_step = self.num_steps + bound
        self.answer = f"at most {bound} more steps"
        return True
