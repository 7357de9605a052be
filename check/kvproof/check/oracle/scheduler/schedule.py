"""Explain one call of `schedule`: which requests left, moved, grew and were admitted, each by its program of rules.

The explanation needs only the step and the tables after it. A running sequence that is not in the step and has no table
was preempted; one whose table is on the host was swapped out; a swapped or waiting sequence that is in the step was
swapped in or admitted. The programs run in this order: ended and preempted, swapped out, running ones in the order of
the step, swapped in, admitted. A scheduler mixes the first three, because it preempts when a sequence cannot append.
The tables at the end are the same, since a group that leaves releases blocks and takes none.

A group that is swapped in appends in the same step, so its table between the two is not shown. It is what the pairs of
the swap make of the table before.
"""

from collections.abc import Sequence

from kvproof.check.oracle.comparison import has_blocks, leaked, table_changed, tables_left
from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.hits import HitJudge
from kvproof.check.oracle.needed_blocks import judge_window, may_end_for_good, num_blocks_kept, num_blocks_needed
from kvproof.check.oracle.scheduler.base import SCHEDULE, ExpectedRequest, SchedulerState
from kvproof.check.oracle.scheduler.failed_loads import FailedLoads
from kvproof.check.oracle.scheduler.preemption import (
    judge_computed_again,
    judge_ended_for_room,
    judge_swapped_out,
    num_blocks_of,
)
from kvproof.check.oracle.scheduler.running_served import Left
from kvproof.check.oracle.scheduler.service import judge_failed
from kvproof.check.oracle.scheduler.step_checks import judge_places, judge_prompts, judge_room_left
from kvproof.check.oracle.swaps import explain_swap
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Pair
from kvproof.check.protocol.scheduler import ABORTED, CAPPED, IGNORED, Chunk, Load, ScheduledStep
from kvproof.spec.text.budgets import exceeds_limits, may_recompute, must_be_a_decode, slots_behind

WAITING, RUNNING, SWAPPED = Status.WAITING, Status.RUNNING, Status.SWAPPED


class StepExplainer:
    """Explains the steps of one scheduler, and gives the worker its part of each."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self.scheduler, self.config, self.capabilities = scheduler, scheduler.config, scheduler.capabilities
        self.hits = HitJudge(scheduler.oracle)
        self.failed_loads = FailedLoads(scheduler)
        self.left = Left(0, 0)  # by the last step
        lookahead = self.config.lookahead if self.capabilities.admits_lookahead else 0
        self.leaves_room = self.capabilities.has_admission_query and bool(lookahead or self.config.watermark)
        self.explainer, self.worker, self.coverage = scheduler.explainer, scheduler.worker, scheduler.coverage

    def explain(self, step: ScheduledStep) -> bool:
        """Explain a step; return whether it changed anything or computes anything. Raises Finding."""
        chunks = self._chunks_by_sequence(step)
        if self.capabilities.dedups_when_scheduled:
            self._exchange()
        known = list(self.scheduler.requests.values()) if step.failed else []
        for request_id in (*step.ignored, *step.failed):
            self._end(request_id, chunks, known if request_id in step.failed else None)
        has_begun_again = bool(self.failed_loads.may_begin_again) and self.failed_loads.begin_again(step)
        step = self._admit_and_swap_out(step, chunks)
        self._leave(step, {*chunks, *(load.seq for load in step.loads)})
        running, swapped, waiting = self._by_status(step)
        for seq, chunk in running:
            self._grow(seq, chunk, step.copies)
        if swapped or step.swap_in:
            self._swap_in(swapped, step)
        if waiting:
            self._admit(waiting, step.copies, {load.seq: load for load in step.loads})
        for load in step.loads:
            if not (self.config.loads_in_step and load.seq in chunks):
                self._load(load, chunks)
        if swapped or waiting:
            judge_places(self.scheduler)
        if step.prompts is not None:
            judge_prompts(self.scheduler, step.chunks, set(step.prompts))
        self.left = self.left._replace(has_begun_again=has_begun_again)
        has_ended = bool(step.ignored or step.failed)
        return bool(chunks or self.left.num_seqs or has_ended or step.loads or has_begun_again)

    def _exchange(self) -> None:
        """Before anything else, what a step computed may have been exchanged for cached blocks of equal content."""
        for seq in self.scheduler.seqs.values():
            if seq.status is RUNNING and seq.slot >= 0 and self.explainer.observed.tables.get(seq.id):
                self.explainer.exchanged_before(seq, SCHEDULE)

    def _chunks_by_sequence(self, step: ScheduledStep) -> dict[int, Chunk]:
        chunks: dict[int, Chunk] = {}
        for chunk in step.chunks:
            name, seq = f"sequence {chunk.seq}", self.scheduler.seqs.get(chunk.seq)
            if seq is None:
                raise Finding("no-use-after-free", "$sequence is scheduled, and is over", call=SCHEDULE, sequence=name)
            if chunk.seq in chunks:
                raise Finding("exclusive-writer", "$sequence is scheduled twice", call=SCHEDULE, sequence=name)
            if chunk.start < 0:
                sentence = "$sequence shall compute from position $observed on; its first one is $expected"
                raise Finding("read-back", sentence, call=SCHEDULE, expected=0, observed=chunk.start, sequence=name)
            if chunk.start > chunk.stop:
                sentence = f"$sequence shall compute from position {chunk.start} on, and end before $observed"
                raise Finding("read-back", sentence, call=SCHEDULE, observed=chunk.stop, sequence=name)
            if chunk.stop > len(seq.tokens):
                raise Finding(
                    "read-back",
                    f"$sequence shall compute positions {chunk.start} to $observed of $expected tokens",
                    call=SCHEDULE,
                    expected=len(seq.tokens),
                    observed=chunk.stop,
                    sequence=name,
                )
            chunks[chunk.seq] = chunk
        return chunks

    def _by_status(
        self, step: ScheduledStep
    ) -> tuple[list[tuple[ExpectedSequence, Chunk]], list[ExpectedRequest], dict[int, list[Chunk]]]:
        running: list[tuple[ExpectedSequence, Chunk]] = []
        swapped: list[ExpectedRequest] = []
        waiting: dict[int, list[Chunk]] = {}
        for chunk in step.chunks:
            seq = self.scheduler.seqs[chunk.seq]
            status = seq.status
            if status is RUNNING:
                running.append((seq, chunk))
                continue
            request = self.scheduler.requests[seq.group.id]
            if status is WAITING:
                waiting.setdefault(request.id, []).append(chunk)
            elif request not in swapped:
                swapped.append(request)
        return running, swapped, waiting

    # Requests that leave --------------------------------------------------------------------------------------------

    def _end(self, request_id: int, chunks: dict[int, Chunk], known: list[ExpectedRequest] | None) -> None:
        """The scheduler ended a request; it may end only one that cannot continue.

        known: all requests before the step, if it failed; else None.
        """
        request = self.scheduler.requests.get(request_id)
        if request is None:
            raise Finding("frame-kept", f"request {request_id} is ended, and was over", call=SCHEDULE)
        is_failed = known is not None
        if not self._exceeds_limits(request):
            if is_failed:
                judge_ended_for_room(self.scheduler, request)
            self._judge_ignored(request) if known is None else judge_failed(self.scheduler, request, known)
        first = request.members[0]
        has_produced = any(len(seq.tokens) > request.num_prompt for seq in request.members)
        self.scheduler.ending[request_id] = (
            (ABORTED,) if is_failed else (IGNORED, CAPPED) if has_produced else (IGNORED,)
        )
        self.coverage["failed" if is_failed else f"ignored while {first.status.value}"] += 1
        if any(seq.id in chunks for seq in request.members):
            raise Finding("no-use-after-free", f"request {request_id} is ended, and scheduled", call=SCHEDULE)
        self.scheduler.forget(request)
        for seq in request.everyone():
            if seq.status is not WAITING:
                self.explainer.freed(seq, SCHEDULE)

    def _exceeds_limits(self, request: ExpectedRequest) -> bool:
        """Whether no step can run the request, however large the pool is."""
        config, length = self.config, max(len(seq.tokens) for seq in request.members)
        limits = config.max_model_len, config.max_num_batched_tokens, config.max_num_seqs
        return exceeds_limits(length, len(request.members), *limits)

    def _judge_ignored(self, request: ExpectedRequest) -> None:
        """A request may be ended for good only if no step can run it, or no later state of this pool."""
        config, scheduler = self.config, self.scheduler
        if may_end_for_good(scheduler.oracle, request):
            return
        usable = config.num_gpu_blocks - num_blocks_kept(scheduler.oracle, request) - scheduler.oracle.num_held_back
        raise Finding(
            "admission-final",
            f"request {request.id} is ended, but needs $observed blocks of $expected that it may use",
            call=SCHEDULE,
            expected=usable,
            observed=num_blocks_needed(scheduler.oracle, request, config.lookahead),
        )

    def _admit_and_swap_out(self, step: ScheduledStep, chunks: dict[int, Chunk]) -> ScheduledStep:
        """Explain sequences that were admitted with a hit, found no more blocks, and were swapped out in one step.

        Returns the step without them, and removes their chunks.
        """
        tables, base = self.explainer.observed.tables, self.config.num_gpu_blocks
        source_of = {target + base: source for source, target in step.swap_out}
        for seq_id, chunk in list(chunks.items()):
            seq, observed = self.scheduler.seqs[seq_id], tables.get(seq_id)
            if seq.status is WAITING and observed and all(block in source_of for block in observed[0]):
                tables[seq_id] = [[source_of[block] for block in observed[0]]]
                self._admit({seq.group.id: [chunk]}, step.copies, {})
                tables[seq_id] = observed
                del chunks[seq_id]
                self.coverage["swapped out when admitted"] += 1
        return step if len(chunks) == len(step.chunks) else step._replace(chunks=list(chunks.values()))

    def _leave(self, step: ScheduledStep, scheduled: set[int]) -> None:
        """Explain sequences that are not in the step: unchanged, preempted or swapped out."""
        seqs, tables = self.scheduler.seqs, self.explainer.observed.tables
        leaving, num_tables = list[ExpectedRequest](), 0
        for seq_id, seq in seqs.items():
            if seq_id in scheduled:
                num_tables += 1
                continue
            observed = tables.get(seq_id) or None
            has_encoded = seq.is_encoder and seq.group.members[0].id in scheduled
            if seq.status is WAITING:
                num_tables += observed is not None
                if observed is not None and has_blocks(observed) and not has_encoded:
                    raise leaked(SCHEDULE, seq, observed)
                continue
            if observed is not None:
                num_tables += 1
                if observed[0] == seq.observed_table and (len(observed) == 1 or observed == seq.tables):
                    continue
                if has_encoded and seq.status is SWAPPED:
                    continue
                if self._has_slid(seq, observed):
                    self.explainer.extended(seq, (), self.config.caching, SCHEDULE)
                    continue
            request = self.scheduler.requests[seq.group.id]
            if seq.status is not RUNNING or any(member.id in scheduled for member in request.members):
                raise table_changed(SCHEDULE, seq, observed, "the step does not run")
            if request not in leaving:
                leaving.append(request)
        if len(tables) > num_tables:
            left = {s: t for s, t in tables.items() if s not in seqs and has_blocks(t)}
            if left:
                raise tables_left(SCHEDULE, left)
        members = [seq for request in leaving for seq in request.members]
        num_tokens = sum([seq.num_unseen + self.config.speculative_tokens for seq in members])
        self.left = Left(num_tokens, len(members), tuple(leaving))
        going_out = [request for request in leaving if any(tables.get(seq.id) for seq in request.members)]
        begin_again = [(request, num_blocks_of(request)) for request in leaving if request not in going_out]
        self.scheduler.num_arrived += bool(begin_again)  # those who are preempted in one step rank equally
        for request, _ in begin_again:
            self.preempt(request, SCHEDULE)
        for request in going_out:
            self._swap_out(request, step)
            judge_swapped_out(self.scheduler, request)
        judge_computed_again(self.scheduler, begin_again)
        self._judge_pairs(step.swap_out, self.worker.swap_out, "out")

    def _has_slid(self, seq: ExpectedSequence, observed: list[list[int]]) -> bool:
        """Whether a sequence that runs only gave up entries: a subject may do so before it finds no room for more."""
        return (
            seq.status is RUNNING
            and self.capabilities.window_drop_when_refused
            and self.scheduler.oracle.leaves_entries
            and all(
                len(old) == len(new) and all(two in (one, NULL_BLOCK) for one, two in zip(old, new, strict=True))
                for old, new in zip(seq.tables, observed, strict=True)
            )
        )

    def _judge_pairs(self, pairs: Sequence[Pair], explained: Sequence[Pair], way: str) -> None:
        """Every pair of a swap belongs to a sequence that moved. Requests that share a block have the same pair."""
        if len(explained) < len(pairs) or len({*explained}) != len({*pairs}):
            sentence, num_pairs = f"$observed pairs, but $expected blocks moved {way}", len(pairs)
            raise Finding("swap-mapping", sentence, call=SCHEDULE, expected=len(explained), observed=num_pairs)

    def preempt(self, request: ExpectedRequest, context: str) -> None:
        """The request was preempted by recompute: it waits again, with all its tokens as the prompt."""
        if not self.capabilities.preempts:
            raise AdapterError(f"request {request.id} was preempted, and the adapter declares preempts=False")
        self.scheduler.hold_until_complete(request, context)
        for seq in request.everyone():
            self.explainer.freed(seq, context)
            seq.status, seq.computed, seq.hit = WAITING, 0, 0
        self.scheduler.drop_sampled(request)
        request.is_preempted = True
        if self.capabilities.requeues_last:
            request.arrival = self.scheduler.num_arrived
        for under in self.scheduler.under_way:
            for seq in request.members:
                under.rejected.pop(seq.id, None)
        for seq in request.members:
            seq.num_prompt = len(seq.tokens)
        if not may_recompute(len(request.members)):
            raise Finding(
                "read-back",
                f"{len(request.members)} sequences of request {request.id} were preempted by recompute; they have no "
                "prompt in common to come back with",
                call=context,
            )
        self.coverage["preempted"] += 1

    def _swap_out(self, request: ExpectedRequest, step: ScheduledStep) -> None:
        base, everyone = self.config.num_gpu_blocks, request.everyone()
        mine = {block - base for seq in everyone for block in (self.explainer.observed.tables.get(seq.id) or [[]])[0]}
        pairs = [pair for pair in step.swap_out if pair[1] in mine]
        for seq in everyone:
            seq.status = SWAPPED
            self.scheduler.used_by_step[seq.id] = seq
        hits_in_step = self.capabilities.same_step_hits
        self.worker.swap_out += explain_swap(self.explainer, everyone, pairs, True, SCHEDULE, hits_in_step)
        self.scheduler.drop_sampled(request)
        self.coverage["swap_out"] += 1

    # Requests that run, come back, or are admitted ------------------------------------------------------------------

    def _grow(self, seq: ExpectedSequence, chunk: Chunk, copies: Sequence[Pair]) -> None:
        self.explainer.extended(seq, copies, self.config.caching, SCHEDULE)
        earlier = [c.start for under in self.scheduler.under_way for c in under.step.chunks if c.seq == seq.id]
        judge_window(
            self.scheduler.oracle, seq, min([chunk.start, *earlier]), SCHEDULE
        )  # a step under way reads from there
        self._compute(seq, chunk)

    def _compute(self, seq: ExpectedSequence, chunk: Chunk) -> None:
        """The step computes a chunk, for which the sequence must have slots."""
        scheduler = self.scheduler
        if seq.id in scheduler.loading:
            raise self._not_arrived(seq.id)
        num_beyond = scheduler.num_rejected.get(seq.id, 0)
        num_beyond += self._num_looked_ahead(seq, chunk.stop, num_beyond) if self.config.lookahead else 0
        have_slots = self.explainer.machine.function("have_slots")
        for part in seq.parts:
            num_entries, num_slots = len(part.observed_table), part.layout.slots(chunk.stop)
            if have_slots(num_entries, num_slots, 0 if part.layout.is_state else num_beyond):
                continue
            beyond = f", and {num_beyond} slots of lookahead beyond" if num_beyond else ""
            raise Finding(
                "read-back",
                "$sequence computes up to $observed$beyond, and has $expected slots",
                call=SCHEDULE,
                values={"beyond": beyond},
                expected=num_entries * part.layout.num_tokens,
                observed=chunk.stop,
                sequence=part.name,
            )
        scheduler.without_slot.discard(seq.id)
        seq.computed = chunk.stop
        scheduler.used_by_step[seq.id] = seq
        self.worker.writes.append((seq, chunk.start, chunk.stop))

    def _num_looked_ahead(self, seq: ExpectedSequence, stop: int, num_rejected: int) -> int:
        """The slots behind what the step computes that a sequence must have; a draft model runs where it samples."""
        config = self.config
        if not config.speculative_tokens:
            return config.lookahead if must_be_a_decode(stop, seq.num_prompt) else 0
        if stop < len(seq.tokens) or self.scheduler.is_over_ahead(seq.id):
            return 0
        self.coverage["looked ahead for drafts"] += 1
        return slots_behind(stop + num_rejected, config.lookahead, config.max_model_len)

    def _swap_in(self, requests: list[ExpectedRequest], step: ScheduledStep) -> None:
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
            hits_in_step = self.capabilities.same_step_hits
            self.worker.swap_in += explain_swap(explainer, everyone, pairs, False, SCHEDULE, hits_in_step)
            for seq_id, observed in after.items():
                if not observed:
                    name = f"sequence {seq_id}"
                    raise Finding(
                        "frame-kept", "$sequence is scheduled, and has no table", call=SCHEDULE, sequence=name
                    )
                tables[seq_id] = observed
            self.coverage["swap_in"] += 1
            for seq in request.members:
                if seq.id not in chunks:
                    sentence = "$sequence was swapped in, and is not in the step"
                    raise Finding("frame-kept", sentence, call=SCHEDULE, sequence=f"sequence {seq.id}")
                self._grow(seq, chunks[seq.id], step.copies)
        self._judge_pairs(step.swap_in, self.worker.swap_in, "in")

    def _admit(self, waiting: dict[int, list[Chunk]], copies: Sequence[Pair], loads: dict[int, Load]) -> None:
        scheduler, explainer, caching = self.scheduler, self.explainer, self.config.caching
        for request_id, chunks in waiting.items():
            request = scheduler.requests[request_id]
            if len(chunks) != len(request.members):
                sentence, values = f"request {request_id} is admitted in part: $chunks", {"chunks": chunks}
                raise Finding("frame-kept", sentence, call=SCHEDULE, values=values)
            first, hit = scheduler.seqs[chunks[0].seq], chunks[0].hit
            for seq in request.everyone():
                seq.status = RUNNING
            leaves_room = self.leaves_room and explainer.machine.function("something_runs")(
                scheduler.state, explainer.num_prefixes
            )
            self.hits.judge_token_left(first, min(hit, chunks[0].start), SCHEDULE)
            if caching and scheduler.oracle.knows_cached:  # else it may learn of KV later
                self.hits.judge_admission(first, hit, SCHEDULE)
            found = copies if scheduler.oracle.hits_within_blocks else None
            num_loaded = loads[first.id].stop - hit if first.id in loads else 0
            explainer.admitted(first, hit, caching, SCHEDULE, self.capabilities.same_step_hits, found, num_loaded)
            for chunk in chunks[1:]:
                seq = scheduler.seqs[chunk.seq]
                explainer.forked(first, seq, SCHEDULE)
                explainer.require_same_tables(first, seq, SCHEDULE)
            if request.encoder:
                explainer.admitted(request.encoder, 0, False, SCHEDULE)
                self.worker.writes.append((request.encoder, 0, len(request.encoder.tokens)))
                scheduler.used_by_step[request.encoder.id] = request.encoder
                self.coverage["cross-attention table"] += 1
            if leaves_room:
                judge_room_left(scheduler, first)
            for chunk in chunks:
                scheduler.seqs[chunk.seq].hit = hit
                if chunk.seq in loads:
                    self._load_in_step(scheduler.seqs[chunk.seq], loads[chunk.seq])
                self._compute(scheduler.seqs[chunk.seq], chunk)
            self.coverage["admitted"] += 1
            if chunks[0].stop < len(first.tokens):
                self.coverage["prompt in chunks"] += 1

    def _load(self, load: Load, chunks: dict[int, Chunk]) -> None:
        """A waiting sequence got its table; the KV that is loaded into it is in flight until it has arrived."""
        scheduler = self.scheduler
        seq = scheduler.seqs.get(load.seq)
        if load.seq in chunks:
            raise self._not_arrived(load.seq)
        if seq is None or seq.status is not WAITING or not load.hit < load.stop <= len(seq.tokens):
            sentence, name = "$load is of no sequence that waits and has those tokens", f"sequence {load.seq}"
            raise Finding("no-use-after-free", sentence, call=SCHEDULE, sequence=name, values={"load": load})
        seq.status, seq.computed, seq.hit = RUNNING, load.stop, load.hit
        in_step, num_loaded = self.capabilities.same_step_hits, load.stop - load.hit
        self.explainer.admitted(seq, load.hit, self.config.caching, SCHEDULE, in_step, num_loaded=num_loaded)
        scheduler.loading[seq.id] = scheduler.pending.launch([seq], SCHEDULE)
        if scheduler.held:  # the scheduler and its connector hold them, each for itself
            scheduler.loading[seq.id] += scheduler.pending.launch([seq], SCHEDULE)
        self.failed_loads.begin(seq, load)
        scheduler.without_slot.add(seq.id)
        self.coverage["load"] += 1

    def _load_in_step(self, seq: ExpectedSequence, load: Load) -> None:
        """The step that lets the sequence in loads the positions behind the hit, before it computes."""
        if load.hit != seq.hit or not load.hit < load.stop < len(seq.tokens):
            sentence = f"the step loads positions {load.hit} to {load.stop - 1} of $sequence, and hits {seq.hit} tokens"
            raise Finding("read-back", sentence, call=SCHEDULE, sequence=seq.name)
        self.worker.writes.append((seq, load.hit, load.stop))
        self.scheduler.loads_in_step.add((seq.id, load.hit))
        self.failed_loads.begin(seq, load)
        self.coverage["load within a step"] += 1

    def _not_arrived(self, seq_id: int) -> Finding:
        sentence = "$sequence is scheduled, and its KV has not arrived"
        return Finding("in-flight-held", sentence, call=SCHEDULE, sequence=f"sequence {seq_id}")
