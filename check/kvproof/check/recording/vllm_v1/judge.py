"""The meaning of the calls of vLLM V1's `KVCacheManager`.

A request without blocks is admitted by the first `allocate_slots` that returns blocks. Each later one extends it by the
tokens that the step computes in addition to those that the engine counts as computed. A step is over when one of its
requests gets slots again, when a request ends, when the cache is reset, or when the engine reports the next step.
"""

from kvproof.check.protocol.manager import Admitted, Refused, Reserved
from kvproof.check.recording.format import RecordedCall
from kvproof.check.recording.replayed_subject import Unjudged
from kvproof.check.recording.trace_judge import RecordingJudge

BETWEEN_STEPS = ("new_step_starts", "reset_prefix_cache", "cache_blocks")
GAVE_NONE = Refused("allocate_slots gave None")


class V1Judge(RecordingJudge):
    """Judges a recording of a `KVCacheManager`."""

    def ends_step(self, line: RecordedCall) -> bool:
        """Whether the line is a call between steps, ends a request, or gives a request slots again in this step."""
        if line.call in BETWEEN_STEPS or line.status.startswith("FINISHED"):
            return True
        seq = self.seqs.get(line.seqs[0].seq) if line.call == "allocate_slots" and line.seqs else None
        return seq is not None and seq.is_busy

    def on_get_computed_blocks(self, line: RecordedCall) -> None:
        """Judge a look-up. The call that allocates reports the hit."""
        self.look_up(line)

    def on_allocate_slots(self, line: RecordedCall) -> None:
        """Judge an allocation: an admission if the request has no blocks, otherwise a growth."""
        self.set_lookahead(line.lookahead)
        if self.first_sequence(line).seq in self.seqs:
            self._go_on(line)
        else:
            self._let_in(line)

    def _let_in(self, line: RecordedCall) -> None:
        if self.first_sequence(line).num_computed:
            raise Unjudged(f"request {line.group} has no blocks, but counts tokens as computed")
        group = self.requests.arrive(line)
        self.replayed.answer = Admitted(line.num_hit) if line.answer else GAVE_NONE
        if not self.manager.do("admit", group.id, line.num_tokens):
            raise Unjudged(f"request {line.group} is admitted, but does not wait")
        if not line.answer:
            for seq in group.members[:]:
                self.requests.remove(seq)

    def _go_on(self, line: RecordedCall) -> None:
        recorded = self.first_sequence(line)
        seq = self.requests.known(recorded)
        self.requests.make_room(line)
        self.requests.learn(seq, recorded)
        self.replayed.answer = Reserved() if line.answer else GAVE_NONE
        stop = min(recorded.num_computed + line.num_tokens, len(seq.tokens))
        num_over = recorded.num_computed - recorded.num_in_flight  # a step in flight may still read what comes after
        self.manager.growth.reserve(seq, max(stop, seq.computed), f"allocate_slots({seq.id})", num_over)

    def on_cache_blocks(self, line: RecordedCall) -> None:
        """Add tokens that were sampled ahead; their KV is already computed."""
        recorded = self.first_sequence(line)
        if recorded.seq not in self.seqs:
            return
        seq, context = self.requests.known(recorded), f"cache_blocks({recorded.seq})"
        self.requests.learn(seq, recorded)
        self.call("total-calls", "step_done", recorded.seq)
        self.oracle.observe(context, [seq])
        self.explainer.extended(seq, (), self.config.caching, context)
        self.oracle.settle(context)
        stop = min(line.num_tokens, len(seq.tokens))
        if seq.computed < stop:
            self.scheduled(seq, seq.computed, stop)

    def on_free(self, line: RecordedCall) -> None:
        """Judge the release of a request that has ended or is preempted."""
        self.leave(line)

    def on_new_step_starts(self, line: RecordedCall) -> None:
        """Do nothing: `ends_step` has ended the previous step."""
