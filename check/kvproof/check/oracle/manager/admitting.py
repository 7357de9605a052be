"""Operations of a group before it runs: it arrives, is looked up, and is admitted."""

from collections.abc import Sequence
from typing import Any

from kvproof.check.oracle.expected import RUNNING, ExpectedSequence, Group, lie_apart
from kvproof.check.oracle.hits import HitJudge
from kvproof.check.oracle.manager.questions import LATER, OK, Questions, check_copies, chunk_end, require_slots
from kvproof.check.oracle.manager.step import ADMITTING, StepJudge
from kvproof.check.oracle.needed_blocks import may_end_for_good
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Admitted, Pair, Refused
from kvproof.spec.text.identity import Image, Key
from kvproof.spec.text.state import GPU

COMPARED_SEQUENCES_MAX = 4  # with a sequence that is looked up while it runs


class AdmissionJudge:
    """Does the operations new, lookup and admit."""

    def __init__(
        self, oracle: Oracle, groups: dict[int, Group], step: StepJudge, questions: Questions, hits: HitJudge
    ) -> None:
        self.oracle, self.explainer, self.worker, self.state = oracle, oracle.explainer, oracle.worker, oracle.state
        self.config, self.capabilities, self.coverage = oracle.config, oracle.capabilities, oracle.coverage
        self.call, self.reply, self.seqs = oracle.call, oracle.reply, oracle.seqs
        self.groups, self.step, self.questions, self.hits = groups, step, questions, hits

    def op_new(
        self,
        gid: int,
        seq_ids: Sequence[int],
        tokens: Sequence[int],
        key: Sequence[Any] = (),
        images: Sequence[Sequence[Any]] = (),
        encoder: Sequence[Any] | None = None,
        prefix: int | None = 0,
        elsewhere: int = 0,
    ) -> bool:
        """A group of waiting sequences with one prompt arrives.

        encoder: its encoder sequence, and the tokens of it. prefix: so many tokens are a named prefix. elsewhere: of so
        many tokens there is KV elsewhere; it counts in whole blocks, and the last token is computed.
        """
        ids = [*seq_ids, *([encoder[0]] if encoder else [])]
        has_room = len(tokens) <= self.oracle.num_tokens_max and len(self.seqs) + len(ids) <= self.oracle.num_seqs_max
        if gid in self.groups or any(i in self.seqs for i in ids) or not tokens or not seq_ids or not has_room:
            return False
        if prefix and not (self.config.prefixes and self.oracle.prefixes.has_room):
            return False
        group, whole, pictures = Group(gid), Key(*key), tuple(Image(*image) for image in images)
        if not lie_apart(pictures, len(tokens)):
            return False
        for seq_id in seq_ids:
            group.members.append(self.oracle.new_sequence(seq_id, group, whole, pictures, tokens))
        if encoder:
            group.encoder = self.oracle.new_encoder(encoder[0], group, encoder[1])
        self.groups[gid] = group
        self.call("total-calls", "new", gid, list(seq_ids), list(tokens), whole, pictures)
        if encoder:
            self.call("total-calls", "new_encoder", gid, encoder[0], list(encoder[1]))
        if prefix:
            group.prefix = self.oracle.prefixes.named(group.members[0], prefix)
            self.call("total-calls", "new_prefix", gid, min(prefix, len(tokens)))
        if self.config.loads and elsewhere:
            size = self.config.block_size
            if num_tokens := min(elsewhere, len(tokens) - 1) // size * size:
                group.elsewhere = num_tokens
                self.call("total-calls", "new_elsewhere", gid, num_tokens)
        return True

    def op_lookup(self, gid: int) -> bool:
        """A waiting group is looked up in the prefix cache, and not admitted; or a sequence that runs is looked up."""
        if self.groups[gid].members[0].status is RUNNING:
            return self._looked_up_running(gid)
        before, context = self.explainer.observed, f"hits({gid})"
        hit = self._looked_up(gid)
        self.reply.text = f"hit {hit}"
        self.call("total-calls", "forget", gid)
        self.oracle.require_unchanged(before, "a look-up only asks")
        self.hits.judge_lookup(self.groups[gid].members[0], hit, context)
        self.hits.judge_missed_hit(self.groups[gid].members[0], hit, context)
        return True

    def _looked_up_running(self, gid: int) -> bool:
        """While the prompt is computed the answer is the hit of the admission, afterwards all that is computed.

        If every token of a prompt is found, an admission may leave its last block out, so that a step has something to
        compute.
        """
        seq, before, context = self.groups[gid].members[0], self.explainer.observed, f"hits({gid})"
        hit = self._looked_up(gid)
        self.reply.text = f"hit {hit}"
        self.oracle.require_unchanged(before, "a look-up only asks")
        if seq.computed >= seq.num_prompt:
            self.hits.judge_lookup(seq, hit, context)
            self.hits.judge_missed_hit(seq, hit, context)
        elif hit == seq.num_prompt == seq.hit + self.config.block_size:
            self.hits.judge_lookup(seq, hit, context)
        elif hit != seq.hit:
            sentence = "$sequence was admitted with a hit of $expected tokens, and a look-up says $observed"
            property = "hit-computed" if hit > seq.hit else "hit-found"
            raise Finding(property, sentence, call=context, expected=seq.hit, observed=hit, sequence=seq.name)
        if self.capabilities.common_blocks:
            running = [one for one in self.seqs.values() if one.status is RUNNING and not one.is_encoder]
            for other in running[:COMPARED_SEQUENCES_MAX]:
                self._judge_common(seq, other)
        return True

    def _judge_common(self, one: ExpectedSequence, other: ExpectedSequence) -> None:
        """The common blocks of two running sequences are computed, and both tables begin with them."""
        context = f"common_blocks([{one.id}, {other.id}])"
        blocks = self.call("total-calls", "common_blocks", [one.id, other.id])
        check_answer("common_blocks", blocks, list)
        for seq in (one, other):
            if blocks != seq.observed_table[: len(blocks)]:
                sentence = "the table of $sequence begins with $expected, and $observed are called common"
                expected = seq.observed_table[: len(blocks)]
                raise Finding(
                    "hit-computed", sentence, call=context, expected=expected, observed=blocks, sequence=seq.name
                )
        if any(not self.state.computed[block] for block in blocks):
            sentence = "$observed are called computed, and not all of them are"
            raise Finding("hit-computed", sentence, call=context, observed=blocks, blocks=blocks)

    def _looked_up(self, gid: int) -> int:
        hit = self.call("total-calls", "hits", gid)
        check_answer("hits", hit, int)
        order, size = self.explainer.order, self.config.block_size
        if hit and order is not None and order.counts_lookups:
            order.looked_up(self.groups[gid].members[0].whole[size - 1 : hit : size])
        return hit  # type: ignore[no-any-return]

    def op_admit(self, gid: int, chunk: int) -> bool:
        """Admit a waiting group, and schedule the first `chunk` tokens that are not hit (all, if not chunked)."""
        self.step.enter(ADMITTING)
        group, context, before = self.groups[gid], f"admit({gid})", self.explainer.observed
        first, looked_up = group.members[0], None
        if self.capabilities.has_admission_query:
            if self.config.caching:
                looked_up = self._looked_up(gid)
                self.hits.judge_lookup(first, looked_up, f"hits({gid})")
            answer = self.questions.ask("can_admit", group)
            if answer is not OK:
                self.questions.judge_refusal(group, answer, f"can_admit({gid})")
                self.coverage[f"admission {self.reply.text}"] += 1
                self.call("total-calls", "forget", gid)
                return True
            self.questions.judge_ok(group, f"can_admit({gid})")
        try:
            result = self.call("admission-sound", "admit", gid, chunk)
        except Finding as finding:
            if finding.property != "total-calls":  # after a call that did not return there is nothing to observe
                after = self.call("total-calls", "observe").free
                if after != before.free:
                    finding.sentence += f"; and free blocks went {before.free} -> {after}"
            num_hit = sum([layout.entries(looked_up or 0) for layout in self.oracle.layouts])
            self.questions.blame(finding, gid, self.questions.num_blocks_admitted(group) - num_hit, GPU)
            raise
        check_answer("admit", result, Admitted, Refused)
        if isinstance(result, Refused):
            if self.capabilities.has_admission_query:
                sentence, values = f"can_admit({gid}) said OK, admit was refused: $reason", {"reason": result.reason}
                raise Finding("admission-sound", sentence, values=values)
            self.reply.text, self.reply.is_refusal = "refused", True
            self.coverage["admission refused"] += 1
            self.oracle.require_unchanged(before, f"{context} was refused")
            if not may_end_for_good(self.oracle, group):
                self.questions.judge_refusal(group, LATER, context)
            return True
        check_answer("admit().hit", result.hit, int)
        check_answer("admit().loaded", result.loaded, int)
        require_loaded(group.elsewhere, result.hit, result.loaded, context)
        if looked_up is not None and looked_up != result.hit:
            self.hits.judge_missed_hit(first, looked_up, f"hits({gid})")
        if not self.capabilities.hits_whole_prompts:
            self.hits.judge_token_left(first, result.hit, context)
        if result.copies:
            check_copies(self.oracle, "admit().copies", result.copies, context)
        self.explain(group, result.hit, chunk, context, result.copies, result.loaded)
        return True

    def explain(
        self, group: Group, hit: int, chunk: int, context: str, copies: Sequence[Pair] = (), num_loaded: int = 0
    ) -> None:
        """Explain an admission, and give the worker its part of the step."""
        explainer, caching = self.explainer, self.config.caching
        first = group.members[0]
        touched = group.all_seqs
        for seq in touched:
            seq.status = RUNNING
        self.oracle.observe(context, touched)
        if caching:
            self.hits.judge_admission(first, hit, context)
        if group.prefix is not None:
            self.oracle.prefixes.begin(group.prefix, first, hit, self.capabilities.lost_hits, context)
        found = copies if self.oracle.hits_within_blocks else None
        explainer.admitted(first, hit, caching, context, self.capabilities.same_step_hits, found, num_loaded)
        if self.step.loading:
            self._judge_loading(first, hit, context)
        for seq in group.members[1:]:
            explainer.forked(first, seq, context)
            explainer.require_same_tables(first, seq, context)
        if group.encoder:
            if group.encoder.slot >= 0:  # a table that was left on the host when the group was preempted
                explainer.freed(group.encoder, context)
                self.coverage["cross-attention table left on the host"] += 1
            explainer.admitted(group.encoder, 0, False, context)
            self.worker.writes.append((group.encoder, 0, len(group.encoder.tokens)))
            self.coverage["cross-attention table"] += 1
        self.oracle.settle(context)
        start = min(hit + num_loaded, len(first.tokens) - 1)
        stop = chunk_end(self.oracle, first, start, chunk) if self.config.chunked else len(first.tokens)
        if num_loaded:
            stop = self._load(first, hit, start, stop)
        self.worker.copy(copies)
        self.reply.text = f"hit {hit}" if hit else "admitted"
        self.coverage["admitted"] += 1
        if hit and self.oracle.has_states:
            self.coverage["hit of a state"] += 1
        if hit and self.oracle.has_several_sizes:
            self.coverage["hit in blocks of different sizes"] += 1
        if group.encoder:
            require_slots(self.oracle, group.encoder, len(group.encoder.tokens), 0, context)
        for seq in group.members:
            require_slots(self.oracle, seq, stop, 0, context)
            seq.hit, seq.computed, seq.is_busy = hit, stop, True
            if start < stop or not num_loaded:
                self.worker.writes.append((seq, start if seq is first else stop, stop))

    def _load(self, seq: ExpectedSequence, hit: int, start: int, stop: int) -> int:
        """The worker loads the positions from `hit` to `start`. Returns where the step ends."""
        self.worker.writes.append((seq, hit, start))
        self.step.loads.add((seq.id, hit))
        self.coverage["loaded from elsewhere"] += 1
        if self.config.loads == 1:
            return stop
        for part in seq.parts:
            self.step.loading.update(part.observed_table[part.at(hit) // self.config.block_size :])
        self.step.loading.discard(NULL_BLOCK)
        return start

    def _judge_loading(self, seq: ExpectedSequence, hit: int, context: str) -> None:
        """What is loaded is no hit before the load is over."""
        for part in seq.parts:
            early = self.step.loading.intersection(part.observed_table[: part.at(hit) // self.config.block_size])
            if early:
                sentence = "a hit of $observed tokens of $sequence has blocks that are being loaded"
                blocks = sorted(early)
                raise Finding("hit-computed", sentence, call=context, observed=hit, blocks=blocks, sequence=part.name)


def require_loaded(num_elsewhere: int, hit: int, num_loaded: int, context: str) -> None:
    """Raise AdapterError unless what is elsewhere behind a hit is loaded, and nothing else."""
    if num_loaded != max(0, num_elsewhere - max(0, hit)):
        sentence = f"{context} loads {num_loaded} tokens behind a hit of {hit}, and {num_elsewhere} are elsewhere"
        raise AdapterError(sentence)
