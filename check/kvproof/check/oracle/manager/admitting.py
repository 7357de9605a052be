"""Operations of a group before it runs: it is told, looked up, and admitted."""

from collections.abc import Sequence
from typing import Any

from kvproof.check.oracle.expected import ExpectedSequence, Group, Status
from kvproof.check.oracle.firing import NUM_ENTRIES_MAX
from kvproof.check.oracle.manager.base import ADMITTING, Judge
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Admitted, Refused
from kvproof.spec.text import operations
from kvproof.spec.text.identity import Image, Key


class Admitting(Judge):
    """new, lookup, admit."""

    def op_new(
        self,
        gid: int,
        seq_ids: Sequence[int],
        tokens: Sequence[int],
        key: Sequence[Any] = (),
        images: Sequence[Sequence[Any]] = (),
        encoder: Sequence[Any] | None = None,
    ) -> bool:
        """A group of waiting sequences with the same prompt exists; perhaps with an encoder (sequence, tokens)."""
        ids = [*seq_ids, *([encoder[0]] if encoder else [])]
        too_long = len(tokens) > (NUM_ENTRIES_MAX - 8) * self.config.block_size
        num_tables = (self._num_waiting() + len(ids)) * len(self.config.kv_groups)
        full = num_tables > len(self.explainer.free_slots)
        if gid in self.groups or any(i in self.seqs for i in ids) or not tokens or not seq_ids or too_long or full:
            return False
        group, whole, pictures = Group(gid), Key(*key), tuple(Image(*image) for image in images)
        for seq_id in seq_ids:
            group.members.append(self._new_sequence(seq_id, group, whole, pictures, tokens))
        if encoder:
            group.encoder = self._new_encoder(encoder[0], group, encoder[1])
        self.groups[gid] = group
        self._call("total-calls", "new", gid, list(seq_ids), list(tokens), whole, pictures)
        if encoder:
            self._call("total-calls", "new_encoder", gid, encoder[0], list(encoder[1]))
        return True

    def _num_waiting(self) -> int:
        return sum(seq.status is Status.WAITING for seq in self.seqs.values())

    def _new_sequence(
        self, seq_id: int, group: Group, key: Key, images: tuple[Image, ...], tokens: Sequence[int]
    ) -> ExpectedSequence:
        window, *further = self.config.windows
        seq = ExpectedSequence(seq_id, group, key, images, self.identities.root(key), window)
        for number, window in enumerate(further, 1):
            seq.add_part(self.identities.root(key, number), window)
        for token in tokens:
            seq.grow(self.identities, token)
        seq.num_prompt = len(tokens)
        self.seqs[seq_id] = seq
        return seq

    def _new_encoder(self, seq_id: int, group: Group, tokens: Sequence[int]) -> ExpectedSequence:
        seq = self._new_sequence(seq_id, group, Key(salt="encoder"), (), tokens)
        seq.is_encoder, seq.window = True, 0
        return seq

    def op_lookup(self, gid: int) -> bool:
        """A waiting group is looked up in the prefix cache, and not admitted."""
        group = self._waiting(gid)
        if not group:
            return False
        before = self.explainer.observed
        self.answer = f"hit {self._call('total-calls', 'hits', gid)}"
        self._call("total-calls", "forget", gid)
        self._unchanged(before, "a look-up only asks")
        return True

    def op_admit(self, gid: int, chunk: int) -> bool:
        """Admit a waiting group, and schedule the first `chunk` tokens that are not hit (all, if not chunked)."""
        group = self._waiting(gid)
        if not group or not self._comes_in_order(ADMITTING):
            return False
        context, before = f"admit({gid})", self.explainer.observed
        if self.capabilities.has_admission_query:
            if self.config.caching:
                self._call("total-calls", "hits", gid)
            answer = self._ask("can_admit", group)
            if answer is not Admission.OK:
                self._judge_wait(group, answer, f"can_admit({gid})")
                self.coverage[f"admission {answer.value}"] += 1
                self._call("total-calls", "forget", gid)
                return True
            self._judge_ok(group, f"can_admit({gid})")
        try:
            result = self._call("admission-sound", "admit", gid, chunk)
        except Finding as finding:
            lost = self._call("total-calls", "observe").free
            if lost != before.free:
                finding.sentence += f"; and free blocks went {before.free} -> {lost}"
            raise
        check_answer("admit", result, Admitted, Refused)
        if isinstance(result, Refused):
            if self.capabilities.has_admission_query:
                raise Finding("admission-sound", f"can_admit({gid}) said OK, admit was refused: {result.reason}")
            self.answer = "refused"
            self.coverage["admission refused"] += 1
            self._unchanged(before, f"{context} was refused")
            if not self._may_end_for_good(group):
                self._judge_wait(group, Admission.LATER, context)
            return True
        self._admitted(group, result.hit, chunk, context)
        return True

    def _admitted(self, group: Group, hit: int, chunk: int, context: str) -> None:
        explainer, caching = self.explainer, self.config.caching
        first = group.members[0]
        touched = [*group.members, *([group.encoder] if group.encoder else [])]
        for seq in touched:
            seq.status = Status.RUNNING
        self._observe(context, touched)
        if caching:
            self._note_missed_hit(first, hit)
        explainer.admitted(first, hit, caching, context, self.capabilities.same_step_hits)
        for seq in group.members[1:]:
            explainer.forked(first, seq, context)
            if seq.tables != first.tables:
                raise Finding("sharing-equal", f"{context}: tables {first.tables} and {seq.tables} of one prompt")
        if group.encoder:
            explainer.admitted(group.encoder, 0, False, context)
            self.worker.writes.append((group.encoder, 0, len(group.encoder.tokens)))
            self.coverage["cross-attention table"] += 1
        self._settle(context)
        start = min(hit, len(first.tokens) - 1)
        stop = self._chunk_end(first, start, chunk) if self.config.chunked else len(first.tokens)
        self.answer = f"hit {hit}" if hit else "admitted"
        self.coverage["admitted"] += 1
        for seq in group.members:
            seq.hit, seq.computed, seq.is_busy = hit, stop, True
            self.worker.writes.append((seq, start if seq is first else stop, stop))

    def _note_missed_hit(self, seq: ExpectedSequence, hit: int) -> None:
        """Count look-ups that found less than was there: no fault, but slow."""
        state, size = self.state, self.config.block_size
        if hit >= (len(seq.tokens) - 1) // size * size:
            return
        gpu = range(self.config.num_gpu_blocks)
        rows = [operations.row_of(part.identities, hit // size, size) for part in seq.parts]
        if all(any(state.computed[b] and state.content[b] == row for b in gpu) for row in rows):
            self.notes["hit-complete"] += 1
