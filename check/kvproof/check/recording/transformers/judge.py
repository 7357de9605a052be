"""The meaning of the calls of transformers' paged cache.

A request gets blocks by a look-up that finds a prefix, or by the first `can_store_request_tokens` that is answered yes.
The loop then makes the indices of a batch, one call for each of its requests, which says exactly what the step computes
and where it writes. The next call of another kind comes after the step. A step fills blocks; `mark_complete_blocks`
registers them, and may replace them by cached ones of equal content. Forks share full blocks and copy the rest.

With overlapping batches the last token of a request becomes known after its step was scheduled; it counts as computed
by the next step.
"""

from collections.abc import Callable

from kvproof.check.oracle.expected import ExpectedSequence, Group, Status
from kvproof.check.oracle.manager.questions import require_slots
from kvproof.check.oracle.scheduler.completion import explain_birth, require_copies
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admitted, Pair, Refused, Reserved
from kvproof.check.recording.format import Header, RecordedCall
from kvproof.check.recording.replayed_subject import Unjudged
from kvproof.check.recording.trace_judge import RecordingJudge
from kvproof.spec.text import operations
from kvproof.spec.text.state import EVICTABLE

STEP_CALLS = ("extend_read_and_write_indices", "fill_block_table")
FORK_CALLS = ("prepare_fork_request", "perform_cache_copy")
NO_ROOM = Refused("can_store_request_tokens said no")


class CacheJudge(RecordingJudge):
    """Judges a recording of a `PagedAttentionCache`."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._ends: dict[int, int] = {}  # of each sequence, the position after the last one that a step computes
        self._to_copy: set[Pair] = set()  # for the children that were forked since the last copies

    def ends_step(self, line: RecordedCall) -> bool:
        """Whether a step is scheduled and the line is about something else."""
        return self.is_step_scheduled and line.call not in STEP_CALLS

    def explain_call(self, line: RecordedCall, handler: Callable[[RecordedCall], None]) -> None:
        if self._to_copy and line.call not in FORK_CALLS:
            require_copies(self._to_copy, [], line.call)
        super().explain_call(line, handler)

    # Blocks for tokens ----------------------------------------------------------------------------------------------

    def on_search_prefix_match(self, line: RecordedCall) -> None:
        """Judge a look-up, which gives the blocks that it finds to the request."""
        if not line.answer:
            self.look_up(line)
            return
        hit, context = int(line.answer), f"search_prefix_match({line.group})"  # type: ignore[arg-type]
        self.call("total-calls", "hits", 0)
        (seq,) = self.requests.arrive(line).members
        seq.status = Status.RUNNING
        self.oracle.observe(context, [seq])
        self.manager.hits.judge_missed_hit(seq, hit, context)
        self.explainer.admitted(seq, hit, True, context)
        self.oracle.settle(context)
        seq.hit = seq.computed = self._ends[seq.id] = hit
        self.coverage["admitted"] += 1

    def on_can_store_request_tokens(self, line: RecordedCall) -> None:
        """Judge slots for the tokens of the next step: an admission if the request has no blocks, else a growth."""
        recorded = self.first_sequence(line)
        last = recorded.num_computed + line.num_tokens
        if recorded.seq in self.seqs:
            seq = self._grow(line, last)
        elif not line.answer:
            self.look_up(line)
            return
        else:
            seq = self._let_in(line)
        if line.answer:
            context = f"can_store_request_tokens({line.group})"
            require_slots(self.oracle, seq, last, 0, context)

    def _grow(self, line: RecordedCall, last: int) -> ExpectedSequence:
        recorded = self.first_sequence(line)
        seq = self.requests.known(recorded)
        self.requests.make_room(line)
        self.requests.learn(seq, recorded)
        computed = seq.computed
        self.replayed.answer = Reserved() if line.answer else NO_ROOM
        stop = max(min(last, len(seq.tokens)), computed)
        self.manager.growth.reserve(seq, stop, f"can_store_request_tokens({line.group})")
        self.unscheduled(seq, computed)
        return seq

    def _let_in(self, line: RecordedCall) -> ExpectedSequence:
        if self.first_sequence(line).num_computed:
            raise Unjudged(f"request {line.group} has no blocks, but counts tokens as computed")
        group = self.requests.arrive(line)
        (seq,) = group.members
        self.replayed.answer = Admitted(0)
        if not self.manager.do("admit", group.id, line.num_tokens):
            raise Unjudged(f"request {line.group} is admitted, but does not wait")
        self.unscheduled(seq, 0)
        self._ends[seq.id] = 0
        return seq

    # Steps ----------------------------------------------------------------------------------------------------------

    def on_extend_read_and_write_indices(self, line: RecordedCall) -> None:
        """Schedule a sequence: the step computes `num_tokens` tokens after those that are computed."""
        recorded, before = self.first_sequence(line), self.explainer.observed
        context = f"{line.call}({line.group})"
        self.call("total-calls", "step_scheduled", recorded.seq)
        seq = self.requests.known(recorded)
        self.oracle.require_unchanged(before, f"{context} must not allocate or free blocks")
        start, last = recorded.num_computed, recorded.num_computed + line.num_tokens
        end = self._ends[seq.id]
        if start > end:
            sentence = "a step computes $sequence from position $observed on, and only $expected positions are computed"
            raise Finding("read-back", sentence, call=context, expected=end, observed=start, sequence=seq.name)
        require_slots(self.oracle, seq, last, 0, context)
        if line.slots:
            self._judge_slots(seq, start, last, line.slots, context)
        self._ends[seq.id] = last
        self.scheduled(seq, min(start, seq.computed), max(seq.computed, min(last, len(seq.tokens))))
        self.is_step_scheduled = True

    on_fill_block_table = on_extend_read_and_write_indices

    def _judge_slots(self, seq: ExpectedSequence, start: int, last: int, slots: list[int], context: str) -> None:
        """A step writes where the table says: the first token, and the first one of each further page."""
        size = self.config.block_size
        positions = [start, *range(start + size - start % size, last, size)]
        expected = [seq.observed_table[at // size] * size + at % size for at in positions]
        if slots != expected:
            sentence = "a step writes tokens of $sequence to the slots $observed, and the table has $expected"
            raise Finding("read-back", sentence, call=context, expected=expected, observed=slots, sequence=seq.name)

    def on_mark_complete_blocks(self, line: RecordedCall) -> None:
        """Judge blocks that a step filled, and that cached ones of equal content may replace."""
        recorded, context = self.first_sequence(line), f"mark_complete_blocks({line.group})"
        self.call("total-calls", "step_done", recorded.seq)
        if recorded.seq not in self.seqs:  # it ended while the step was under way
            return
        seq = self.requests.known(recorded)
        self.requests.learn(seq, recorded)
        self.oracle.observe(context, [seq])
        self.explainer.exchanged(seq, context)
        self.oracle.settle(context)

    # Forks ----------------------------------------------------------------------------------------------------------

    def on_prepare_fork_request(self, line: RecordedCall) -> None:
        """Judge a fork: each child shares full blocks of its parent, and the rest is to be copied."""
        recorded, context = self.first_sequence(line), f"prepare_fork_request({line.group})"
        self.call("total-calls", "fork", recorded.seq)
        parent = self.requests.known(recorded)
        self.requests.learn(parent, recorded)
        self.requests.make_room(line)
        children = []
        for forked in line.seqs[1:]:
            if forked.seq in self.seqs:
                raise Unjudged(f"sequence {forked.seq} is forked, but has a table already")
            child = parent.forked(forked.seq)
            number = self.requests.number_of(f"child {child.id}")
            child.group = self.groups[number] = Group(number)
            child.group.members.append(child)
            self.seqs[child.id] = child
            self._ends[child.id] = self._ends[parent.id]
            children.append(child)
        self.oracle.observe(context, children)
        for child in children:
            self._to_copy |= explain_birth(self.explainer, parent, parent.observed_table, child, context)
            self.coverage["forked by itself"] += 1
        self.oracle.settle(context)

    def on_perform_cache_copy(self, line: RecordedCall) -> None:
        """Judge the copies for all children that were forked, and execute them."""
        before, copies = self.explainer.observed, line.answer if isinstance(line.answer, list) else []
        self.call("total-calls", "step_done", 0)
        self.oracle.require_unchanged(before, "perform_cache_copy must not allocate or free blocks")
        require_copies(self._to_copy, copies, line.call)
        self._to_copy.clear()
        self.worker.execute(0)  # the targets are cleared before the copies, as they are for a step
        self.worker.copy(copies)
        self.end_step()

    # Releases -------------------------------------------------------------------------------------------------------

    def on_free_blocks(self, line: RecordedCall) -> None:
        """Judge the release of a request that has ended, is cancelled, or is taken out for others."""
        self._ends.pop(self.first_sequence(line).seq, None)
        self.leave(line)

    def on_evict_cached_blocks(self, line: RecordedCall) -> None:
        """Judge an eviction: nothing that no request holds is found again."""
        self.look_up(line)
        self._evict(line.call)

    def _evict(self, context: str) -> None:
        for block in range(self.config.num_gpu_blocks):
            if self.state.status[block] == EVICTABLE:
                self.explainer.run(operations.take(self.state, block), context)

    def on_free_all_requests(self, line: RecordedCall) -> None:
        """Judge the release of every request."""
        self.call("total-calls", "free", 0)
        ended = list(self.seqs.values())
        self.requests.clear()
        self._ends.clear()
        self.oracle.observe(line.call)
        for seq in ended:
            self.explainer.freed(seq, line.call)
        self.oracle.settle(line.call)

    def on_reset(self, line: RecordedCall) -> None:
        """Judge a reset: every request is released, and nothing is cached."""
        self.on_free_all_requests(line)
        self._evict(line.call)
