"""One call of `schedule` explained: who left, who moved, who grew and who was admitted, each by the program of it.

Nothing is asked but what the step says and which tables there are after it. A running sequence that is not in the step
and has no table was preempted; one whose table is on the host was swapped out; a swapped or waiting one that is in the
step came back or was admitted. The programs are run in this order: ended and preempted, swapped out, running ones in
the order of the step, swapped in, admitted. A scheduler mixes the first three (it preempts when somebody cannot
append), and that makes no difference to what its tables are in the end: a group that leaves gives blocks up and takes
none, so that doing it first only makes more of them free.

A group that is swapped in appends in the same step, so the table it had in between is shown nowhere; it is what the
pairs make of the table before.
"""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.manager.base import changed
from kvproof.check.oracle.scheduler.requests import Request
from kvproof.check.oracle.scheduler.running_ahead import Ahead
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Pair
from kvproof.check.protocol.scheduler import Chunk, Load, Step
from kvproof.spec.text.budgets import exceeds_limits, have_places

ABOUT = "schedule()"
WAITING, RUNNING, SWAPPED = Status.WAITING, Status.RUNNING, Status.SWAPPED


class Scheduling(Ahead):
    """What a step did to the tables."""

    def _explain(self, step: Step) -> bool:
        """Explain a step, and give the worker its part of it; whether anything changed or is to be computed."""
        chunks = self._chunks_by_sequence(step)
        for request_id in (*step.ignored, *step.failed):
            self._ended(request_id, chunks, request_id in step.failed)
        step = self._admit_who_leaves(step, chunks)
        num_left = self._leave(step, {*chunks, *(load.seq for load in step.loads)})
        running, swapped, waiting = self._by_status(step)
        for seq, chunk in running:
            self._grow(seq, chunk, step.copies)
        if swapped or step.swap_in:
            self._swap_in(swapped, step)
        if waiting:
            self._admit(waiting)
        for load in step.loads:
            self._load(load, chunks)
        if swapped or waiting:
            self._hold_places()
        return bool(chunks or num_left or step.ignored or step.failed or step.loads)

    def _not_arrived(self, seq_id: int) -> Finding:
        return Finding("in-flight-held", f"{ABOUT}: sequence {seq_id} is scheduled, and its KV has not arrived")

    def _load(self, load: Load, chunks: dict[int, Chunk]) -> None:
        """A waiting sequence got its table, and the KV that is to come is in flight until it has arrived."""
        seq = self.seqs.get(load.seq)
        if load.seq in chunks:
            raise self._not_arrived(load.seq)
        if seq is None or seq.status is not WAITING or not load.hit < load.stop <= len(seq.tokens):
            raise Finding("no-use-after-free", f"{ABOUT}: {load} is of no sequence that waits and has those tokens")
        seq.status, seq.computed, seq.hit = RUNNING, load.stop, load.hit
        self.explainer.admitted(seq, load.hit, self.config.caching, ABOUT, self.capabilities.same_step_hits)
        self.loading[seq.id] = self.pending.launch([seq], ABOUT)
        self.apart.add(seq.id)
        self.coverage["load"] += 1

    def _admit_who_leaves(self, step: Step, chunks: dict[int, Chunk]) -> Step:
        """Explain who was let in with what was found, found no room for more, and was swapped out; what remains."""
        tables, base = self.explainer.observed.tables, self.config.num_gpu_blocks
        source_of = {target + base: source for source, target in step.swap_out}
        for seq_id, chunk in list(chunks.items()):
            shown = tables.get(seq_id)
            if self.seqs[seq_id].status is WAITING and shown and all(block in source_of for block in shown[0]):
                tables[seq_id] = [[source_of[block] for block in shown[0]]]
                self._admit({self.seqs[seq_id].group.id: [chunk]})
                tables[seq_id] = shown
                del chunks[seq_id]
                self.coverage["swapped out when admitted"] += 1
        return step if len(chunks) == len(step.chunks) else step._replace(chunks=list(chunks.values()))

    def _hold_places(self) -> None:
        """Somebody was let in: there are places for all. Forks alone may take more, since nobody asks the scheduler."""
        members = [seq for r in self.requests.values() if not r.is_doomed for seq in r.members]
        num_running = sum([seq.status is RUNNING and seq.id not in self.apart for seq in members])
        if not self.capabilities.bounds_only_steps and not have_places(num_running, self.config.max_num_seqs):
            raise Finding(
                "budget-kept",
                f"{ABOUT}: somebody was let in, and {num_running} sequences run, {self.config.max_num_seqs} may",
            )

    def _chunks_by_sequence(self, step: Step) -> dict[int, Chunk]:
        chunks: dict[int, Chunk] = {}
        for chunk in step.chunks:
            seq = self.seqs.get(chunk.seq)
            if seq is None:
                raise Finding("no-use-after-free", f"{ABOUT}: sequence {chunk.seq} is scheduled, and is over")
            if chunk.seq in chunks:
                raise Finding("exclusive-writer", f"{ABOUT}: sequence {chunk.seq} is scheduled twice")
            if not 0 <= chunk.start <= chunk.stop <= len(seq.tokens):
                raise Finding(
                    "read-back",
                    f"{ABOUT}: sequence {chunk.seq} shall compute positions {chunk.start} to {chunk.stop} "
                    f"of {len(seq.tokens)} tokens",
                )
            chunks[chunk.seq] = chunk
        return chunks

    def _by_status(
        self, step: Step
    ) -> tuple[list[tuple[ExpectedSequence, Chunk]], list[Request], dict[int, list[Chunk]]]:
        running: list[tuple[ExpectedSequence, Chunk]] = []
        swapped: list[Request] = []
        waiting: dict[int, list[Chunk]] = {}
        for chunk in step.chunks:
            seq = self.seqs[chunk.seq]
            status = seq.status
            if status is RUNNING:
                running.append((seq, chunk))
                continue
            request = self.requests[seq.group.id]
            if status is WAITING:
                waiting.setdefault(request.id, []).append(chunk)
            elif request not in swapped:
                swapped.append(request)
        return running, swapped, waiting

    # Leaving --------------------------------------------------------------------------------------------------------

    def _ended(self, request_id: int, chunks: dict[int, Chunk], is_failed: bool) -> None:
        """The scheduler ended a request: only one that could not go on."""
        request = self.requests.get(request_id)
        if request is None:
            raise Finding("frame-kept", f"{ABOUT}: request {request_id} is ended, and was over")
        if not is_failed:
            self._judge_ignored(request)
        first = request.members[0]
        self.coverage["failed" if is_failed else f"ignored while {first.status.value}"] += 1
        if any(seq.id in chunks for seq in request.members):
            raise Finding("no-use-after-free", f"{ABOUT}: request {request_id} is ended, and scheduled")
        self._forget(request)
        for seq in request.everyone():
            if seq.status is not WAITING:
                self.explainer.freed(seq, ABOUT)

    def _judge_ignored(self, request: Request) -> None:
        """A request may be ended for good only if no later state of this pool could run it."""
        config = self.config
        length = max(len(seq.tokens) for seq in request.members)
        limits = config.max_model_len, config.max_num_batched_tokens, config.max_num_seqs
        if exceeds_limits(length, len(request.members), *limits):
            return
        if not self._may_end_for_good(request):
            need = self._num_blocks_needed(request, config.lookahead)
            usable = config.num_gpu_blocks - self._num_blocks_kept(request) - self._num_held_back
            raise Finding(
                "admission-final",
                f"{ABOUT}: request {request.id} is ended, but needs {need} blocks of {usable} that it may use",
            )

    def _leave(self, step: Step, chunks: set[int]) -> int:
        """Sequences that are not in the step: unchanged, preempted or swapped out. How many groups left the GPU."""
        tables, leaving, num_tables = self.explainer.observed.tables, list[Request](), 0
        for seq_id, seq in self.seqs.items():
            if seq_id in chunks:
                num_tables += 1
                continue
            shown = tables.get(seq_id)
            if seq.status is WAITING:
                if shown:
                    num_tables += 1
                    if not (seq.is_encoder and seq.group.members[0].id in chunks):
                        raise Finding("no-leak-at-rest", f"{ABOUT}: sequence {seq_id} waits, but has {shown}")
                continue
            if shown is not None:
                num_tables += 1
                if shown[0] == seq.observed_table and (len(shown) == 1 or shown == seq.tables):
                    continue
                if seq.is_encoder and seq.group.members[0].id in chunks and seq.status is SWAPPED:
                    continue
            request = self.requests[seq.group.id]
            if seq.status is not RUNNING or any(member.id in chunks for member in request.members):
                raise Finding("frame-kept", f"{ABOUT}: {changed(seq, shown, 'the step does not run')}")
            if request not in leaving:
                leaving.append(request)
        if len(tables) > num_tables:
            left = {s: t for s, t in tables.items() if s not in self.seqs}
            if left:
                raise Finding("no-leak-at-rest", f"{ABOUT}: sequences that are over still have tables: {left}")
        going_out = [request for request in leaving if any(seq.id in tables for seq in request.members)]
        for request in leaving:
            if request not in going_out:
                self._preempted(request)
        for request in going_out:
            self._swapped_out(request, step)
        if len(self.worker.swap_out) != len(step.swap_out):
            raise Finding(
                "swap-mapping", f"{ABOUT}: {len(step.swap_out)} pairs, but {len(self.worker.swap_out)} blocks moved out"
            )
        return len(leaving)

    def _preempted(self, request: Request) -> None:
        for seq in request.everyone():
            self.explainer.freed(seq, ABOUT)
            seq.status, seq.computed, seq.hit = WAITING, 0, 0
        self._drop_ahead(request)
        if len(request.members) > 1:
            raise Finding(
                "read-back", f"{ABOUT}: {len(request.members)} sequences of request {request.id} were preempted by "
                "recompute; they have no prompt in common to come back with"
            )  # fmt: skip
        self.coverage["preempted"] += 1

    def _swapped_out(self, request: Request, step: Step) -> None:
        base, everyone = self.config.num_gpu_blocks, request.everyone()
        mine = {block - base for seq in everyone for block in self.explainer.observed.tables.get(seq.id, [[]])[0]}
        pairs = [pair for pair in step.swap_out if pair[1] in mine]
        for seq in everyone:
            seq.status = SWAPPED
            self.using[seq.id] = seq
        self.worker.swap_out += self.explainer.swapped(everyone, pairs, True, ABOUT)
        self._drop_ahead(request)
        self.coverage["swap_out"] += 1

    # Coming back, growing, coming -----------------------------------------------------------------------------------

    def _grow(self, seq: ExpectedSequence, chunk: Chunk, copies: Sequence[Pair]) -> None:
        self.explainer.extended(seq, copies, self.config.caching, ABOUT)
        earlier = [c.start for under in self.under_way for c in under.step.chunks if c.seq == seq.id]
        self._hold_window(seq, min([chunk.start, *earlier]), ABOUT)  # a step under way reads from there
        self._compute(seq, chunk)

    def _compute(self, seq: ExpectedSequence, chunk: Chunk) -> None:
        if seq.id in self.loading:
            raise self._not_arrived(seq.id)
        num_slots = len(seq.observed_table) * self.config.block_size
        if chunk.stop > num_slots:
            raise Finding(
                "read-back",
                f"{ABOUT}: sequence {seq.id} computes up to {chunk.stop}, and has {num_slots} slots",
            )
        self.apart.discard(seq.id)
        seq.computed = chunk.stop
        self.using[seq.id] = seq
        self.worker.writes.append((seq, chunk.start, chunk.stop))

    def _swap_in(self, requests: list[Request], step: Step) -> None:
        explainer, tables, base = self.explainer, self.explainer.observed.tables, self.config.num_gpu_blocks
        chunks = {chunk.seq: chunk for chunk in step.chunks}
        for request in requests:
            everyone = request.everyone()
            mine = {block - base for seq in everyone for block in seq.observed_table}
            pairs = [pair for pair in step.swap_in if pair[0] in mine]
            target_of = dict(pairs)
            after = {seq.id: tables.get(seq.id) for seq in everyone}
            for seq in everyone:
                tables[seq.id] = [[target_of.get(b - base, b) if b >= base else b for b in seq.observed_table]]
                seq.status = RUNNING
            self.worker.swap_in += explainer.swapped(everyone, pairs, False, ABOUT)
            for seq_id, shown in after.items():
                if shown is None:
                    raise Finding("frame-kept", f"{ABOUT}: sequence {seq_id} is scheduled, and has no table")
                tables[seq_id] = shown
            self.coverage["swap_in"] += 1
            for seq in request.members:
                if seq.id not in chunks:
                    raise Finding("frame-kept", f"{ABOUT}: sequence {seq.id} was swapped in, and is not in the step")
                self._grow(seq, chunks[seq.id], step.copies)
        if len(self.worker.swap_in) != len(step.swap_in):
            raise Finding(
                "swap-mapping", f"{ABOUT}: {len(step.swap_in)} pairs, but {len(self.worker.swap_in)} blocks moved in"
            )

    def _admit(self, waiting: dict[int, list[Chunk]]) -> None:
        explainer, caching = self.explainer, self.config.caching
        for request_id, chunks in waiting.items():
            request = self.requests[request_id]
            if len(chunks) != len(request.members):
                raise Finding("frame-kept", f"{ABOUT}: request {request_id} is admitted in part: {chunks}")
            first, hit = self.seqs[chunks[0].seq], chunks[0].hit
            for seq in request.everyone():
                seq.status = RUNNING
            if caching and not (self.config.async_steps or self.config.transfers):  # else it may learn of KV later
                self._note_missed_hit(first, hit)
            explainer.admitted(first, hit, caching, ABOUT, self.capabilities.same_step_hits)
            for chunk in chunks[1:]:
                seq = self.seqs[chunk.seq]
                explainer.forked(first, seq, ABOUT)
                if seq.tables != first.tables:
                    raise Finding("sharing-equal", f"{ABOUT}: tables {first.tables} and {seq.tables} of one prompt")
            if request.encoder:
                explainer.admitted(request.encoder, 0, False, ABOUT)
                self.worker.writes.append((request.encoder, 0, len(request.encoder.tokens)))
                self.using[request.encoder.id] = request.encoder
                self.coverage["cross-attention table"] += 1
            for chunk in chunks:
                self.seqs[chunk.seq].hit = hit
                self._compute(self.seqs[chunk.seq], chunk)
            self.coverage["admitted"] += 1
            if chunks[0].stop < len(first.tokens):
                self.coverage["prompt in chunks"] += 1
