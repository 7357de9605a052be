"""What all judges share: one opened subject, what is expected of it, and the state of the specification beside it.

The oracle calls the subject, observes it after each call, checks that the tables of other sequences did not change, and
compares the pool and the memory with the specification. It also states the questions that more than one judge asks:
what a group needs, whether a window is kept, whether a cache may be reset. The rules are those of the specification.

A judge of a large pool may be *sparse*. After a call it then compares only what the call was about: the tables of its
sequences, the counts of free blocks, and the memory that the step wrote. Who drives it calls `compare_all` from time to
time and at the end of the run, so that a change of anything else is found too, and repeats the operations since the
last such comparison with a judge that is not sparse, which names the operation of the change.
"""

from collections import Counter
from collections.abc import Sequence
from math import lcm

from kvproof.check.oracle.expected import WAITING, ExpectedSequence, Group
from kvproof.check.oracle.firing import is_large, num_entries_max, num_seqs_max
from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.oracle.named_prefixes import NamedPrefixes
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.oracle.subject_calls import ObservedSubject, SubjectCalls
from kvproof.check.oracle.unordered import unordered
from kvproof.check.protocol.adapter_check import check_new, check_observation
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import (
    LOCAL,
    WINDOW,
    Capabilities,
    Config,
    Observation,
    Unsupported,
    fault_of_kv_groups,
)
from kvproof.spec.text import operations
from kvproof.spec.text.identity import Identities, Image, Key
from kvproof.spec.text.state import GPU

BLOCKS_OF_LOOKUP = 64  # that a sparse judge looks at for a look-up, on average
SPARE_ENTRIES = 8  # of a table: for lookahead slots


class Oracle(SubjectCalls):
    """One opened subject, what is expected of it, and the specification beside it."""

    def __init__(
        self,
        subject: ObservedSubject,
        config: Config,
        identities: Identities | None = None,
        *,
        num_flights: int = 0,
        judges_eviction_order: bool = True,
    ) -> None:
        """Open the subject. Raises Unsupported, Finding, AdapterError, and StandInError.

        num_flights: accesses of one block each that may be pending at once. judges_eviction_order: whether it is known
        what the subject has cached whenever it evicts.
        """
        check_kv_groups(config, subject.capabilities)
        self.subject, self.config, self.capabilities = subject, config, subject.capabilities
        self.identities = identities or Identities()
        self.seqs: dict[int, ExpectedSequence] = {}
        self.now = 0
        self.is_sparse, self.num_lookups = False, 0
        self.hits_within_blocks = subject.capabilities.hits_within_blocks and len(config.kv_groups) == 1
        self.leaves_entries, self.layouts = config.leaves_entries, config.layouts
        self.has_states, self.has_several_sizes = config.has_states, len({*config.block_sizes}) > 1
        self.reads_only_last = 1 in config.windows  # a window of one token: nothing before a token is read
        self.num_held_back = int(config.watermark * config.num_gpu_blocks)  # from admission, by the watermark
        # Tokens of a prompt, and of what is sampled
        self.num_seqs_max = num_seqs_max(config)
        self.num_tokens_max = (num_entries_max(config) - SPARE_ENTRIES) * min(config.block_sizes)
        self.coverage: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.answer = ""  # of the last operation, for people
        self._open()
        first = self.call("total-calls", "observe")
        check_observation(first, len(config.kv_groups), config.num_gpu_blocks + config.num_host_blocks)
        check_new(first, config.num_gpu_blocks)
        self.explainer = Explainer(config, first, self.identities, self.coverage, num_flights)
        self.worker, self.state = self.explainer.worker, self.explainer.state
        self.prefixes = NamedPrefixes(self.explainer, self.capabilities.prefixes_stay)
        # Of blocks of several sizes, and of states, not all that could be found is cached
        has_order = config.caching and not (self.reads_only_last or self.has_several_sizes or self.has_states)
        can_judge_order = judges_eviction_order and has_order and not is_large(config)
        if can_judge_order and self.capabilities.eviction:
            self.explainer.watch_eviction_order(self.capabilities.eviction, self.capabilities.lost_hits == 0)
        self.explainer.compare_pool("open", self.is_at_rest)

    def observe(self, context: str, touched: Sequence[ExpectedSequence] = ()) -> None:
        """Observe the subject, and check the frame: a call changes no table but those of the `touched` sequences."""
        explainer = self.explainer
        if self.is_sparse:
            explainer.observed = self.observed_part([seq.id for seq in touched])
            return
        observed = explainer.observed = self.call("total-calls", "observe")
        tables, num_expected = observed.tables, 0
        for seq_id, seq in self.seqs.items():
            if seq.status is WAITING:
                if has_blocks(tables.get(seq_id)):
                    raise leaked(context, seq, tables[seq_id])
                num_expected += seq_id in tables
                continue
            num_expected += 1
            if seq in touched:
                continue
            table = tables.get(seq_id)
            if not table or table[0] != seq.observed_table or (len(table) > 1 and table != seq.tables):
                raise table_changed(context, seq, table, "it is not about")
        if len(tables) > num_expected:
            left = {s: t for s, t in tables.items() if s not in self.seqs and has_blocks(t)}
            if left:
                raise tables_left(context, left)

    def observed_part(self, seq_ids: list[int]) -> Observation:
        """The tables that the subject shows for these sequences, or for more, and its counts of free blocks."""
        if hasattr(self.subject, "observe_part"):
            part: Observation = self.call("total-calls", "observe_part", seq_ids)
            return part
        observed: Observation = self.call("total-calls", "observe")
        return observed._replace(refs=None, free_ids=None)

    def compare_all(self, context: str) -> None:
        """Compare every table, refcount, list and slot. Between the calls of a run nothing may have changed."""
        was_sparse, self.is_sparse = self.is_sparse, False
        self.observe_all(context)
        self.settle(context)
        if not self.worker.is_pending:
            self.compare_memory(())
        self.is_sparse = was_sparse

    def observe_all(self, context: str) -> None:
        """Observe the subject; no table may have changed."""
        self.observe(context)

    def settle(self, context: str) -> None:
        """The call is explained: what the subject shows of its pool must be what the specification has."""
        self.explainer.compare_pool(context, self.is_at_rest)

    def require_unchanged(self, before: Observation, context: str) -> None:
        """Observe the subject; a call that refuses, or only asks, changes nothing."""
        if self.is_sparse:
            after = self.explainer.observed = self.observed_part([])
            before = after._replace(free=before.free, reserved=before.reserved)
        else:
            after = self.explainer.observed = self.call("total-calls", "observe")
        if after != before:
            pairs = zip(Observation._fields, _what_counts(before), _what_counts(after), strict=True)
            for name, old, new in pairs:
                if old != new:
                    sentence = f"{context}, but {name} went $expected -> $observed"
                    raise Finding("failed-call-changes-nothing", sentence, expected=old, observed=new)

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        num_blocks = self.config.num_gpu_blocks + self.config.num_host_blocks
        check_observation(self.explainer.observed, len(self.config.kv_groups), num_blocks)

    def is_at_rest(self) -> bool:
        """Whether no sequence has blocks."""
        return all(seq.status is WAITING for seq in self.seqs.values())

    # What groups need, and what may be answered ---------------------------------------------------------------------

    def num_blocks_needed(self, group: Group, lookahead: int) -> int:
        """Blocks that a group needs if it shares none with other groups. Waiting members have one table together."""
        is_waiting = group.members[0].status is WAITING
        members = group.members[:1] if is_waiting else group.members
        needed = 0
        for seq in members:
            num_tokens = len(seq.tokens) + lookahead
            for layout in self.layouts:
                needed += layout.entries(num_tokens)
        if self.capabilities.ring_window and self.config.window:
            needed = min(needed, len(members) * self.explainer.machine.function("blocks_of_ring")(self.config.window))
        if group.prefix is not None:
            needed -= self.prefixes.num_shared(group)
        return needed + (self.explainer.blocks_for(len(group.encoder.tokens)) if group.encoder else 0)

    def num_blocks_kept(self, group: Group) -> int:
        """Blocks of the GPU that the group can never get: reserved ones and the null block."""
        has_null = self.leaves_entries and group.members[0].status is not WAITING
        num_reserved = len(self.explainer.observed.reserved) + self.prefixes.num_blocks
        kept: int = self.explainer.machine.function("blocks_kept")(num_reserved, has_null)
        return kept

    def may_end_for_good(self, group: Group) -> bool:
        """Whether no later state of the pool could run the group; a subject may declare that it keeps a reserve."""
        gpu, slack = self.config.num_gpu_blocks, self.capabilities.refusal_slack or 0
        needed, kept = self.num_blocks_needed(group, self.config.lookahead) + slack, self.num_blocks_kept(group)
        answer: bool = self.explainer.machine.function("may_end_for_good")(needed, kept, self.num_held_back, gpu)
        return answer

    def judge_reset(self, is_done: bool, context: str) -> None:
        """The prefix cache was reset, or the reset was refused: it is done exactly when nothing is held."""
        may_reset: bool = self.explainer.machine.function("may_reset")(self.state)
        if may_reset and not is_done:
            raise Finding("no-leak-at-rest", f"{context} was refused although nothing is held")
        if is_done and not may_reset:
            raise Finding("evict-unreferenced", f"{context} was done although blocks are in use")

    # Sequences ------------------------------------------------------------------------------------------------------

    def new_sequence(
        self, seq_id: int, group: Group, key: Key, images: tuple[Image, ...], tokens: Sequence[int]
    ) -> ExpectedSequence:
        """Expect a waiting sequence with this prompt, with a table in each KV group once it runs."""
        (window, *further), layouts = self.config.windows, self.layouts
        seq = ExpectedSequence(seq_id, group, key, images, self.identities.root(key), window, layouts[0])
        for number, window in enumerate(further, 1):
            seq.add_part(self.identities.root(key, number), window, layouts[number])
        seq.grow_all(self.identities, tokens)
        seq.num_prompt = len(tokens)
        self.seqs[seq_id] = seq
        return seq

    def new_encoder(self, seq_id: int, group: Group, tokens: Sequence[int]) -> ExpectedSequence:
        """Expect the encoder sequence of a group."""
        seq = self.new_sequence(seq_id, group, Key(salt="encoder"), (), tokens)
        seq.is_encoder, seq.window = True, 0
        return seq

    def judge_lookup(self, seq: ExpectedSequence, hit: int, context: str) -> None:
        """A look-up reported that the first `hit` tokens of a waiting sequence need no computation: so it is, now."""
        self.explainer.require_possible_hit(hit, len(seq.tokens), self.hits_within_blocks, context)
        if not hit or self.leaves_out_lookup():
            return
        size = self.config.block_size
        if (num_within := hit % size) and not any(
            self.explainer.has_part(block, seq.whole[hit - num_within : hit])
            for block in range(self.config.num_gpu_blocks)
        ):
            sentence = f"a hit of $observed tokens, but no block holds the last {num_within} of them"
            raise Finding("hit-computed", sentence, call=context, observed=hit, sequence=seq.name)
        hittable = operations.hittable_identities(
            self.state, range(self.config.num_gpu_blocks), self.capabilities.same_step_hits
        )
        for part in seq.parts:
            num_tokens = part.layout.num_tokens
            entry = operations.entry_not_hittable(hittable, size, part.whole, hit // num_tokens, part.window)
            if entry is not None:
                what = "the state of" if part.layout.is_state else f"tokens {entry * num_tokens} to"
                raise Finding(
                    "hit-computed",
                    f"a hit of $observed tokens, but no computed block holds {what} {(entry + 1) * num_tokens - 1} "
                    "of $sequence",
                    call=context,
                    observed=hit,
                    sequence=part.name,
                )

    def leaves_out_lookup(self) -> bool:
        """Whether a sparse judge does not look at every block for this look-up; it does so for one in many."""
        if not self.is_sparse:
            return False
        self.num_lookups += 1
        return self.num_lookups % max(1, self.config.num_gpu_blocks // BLOCKS_OF_LOOKUP) != 0

    def judge_missed_hit(self, seq: ExpectedSequence, hit: int, context: str) -> None:
        """Compare a hit with the longest one: a miss is slow, and a fault if the subject declares that it loses less.

        At least one token of a prompt is computed, so a hit of the last block of a prompt is not missed, unless the
        subject declares that it finds whole prompts. With a window of one token nothing before a token is read, so that
        there is nothing to find. With drafting the last block of a hit is dropped. If the groups have blocks of
        different sizes, a group drops one of its own, or all up to the next common boundary: a hit is missed if both
        are cached.
        """
        size, declared = self.config.block_size, self.capabilities.lost_hits
        num_hit, num_dropped = hit // size, int(self.config.drafting)
        longest = (len(seq.tokens) - (not self.capabilities.hits_whole_prompts)) // size - num_dropped
        if num_hit >= longest or not self.config.caching or self.reads_only_last or self.leaves_out_lookup():
            return
        unsure, unaligned = self.explainer.maybe_evicted, self.explainer.unaligned
        cached = [b for b in range(self.config.num_gpu_blocks) if b not in unsure and b not in unaligned]
        hittable = operations.hittable_identities(self.state, cached, False)
        while longest > num_hit and any(
            operations.entry_not_hittable(hittable, size, part.whole, num_entries, part.window) is not None
            for part in seq.parts
            for num_entries in part.entries_found(longest * size, num_dropped)
        ):
            longest -= 1
        if longest > num_hit:
            self.notes["hit-complete"] += 1
        if declared is not None and longest - num_hit > declared:
            raise Finding(
                "hit-found",
                f"a hit of $observed tokens of $sequence, but $expected are cached; the subject declares that a "
                f"look-up misses at most {declared} blocks",
                call=context,
                expected=longest * size,
                observed=hit,
                sequence=seq.name,
            )

    def judge_window(self, seq: ExpectedSequence, num_done: int, context: str) -> None:
        """After a growth a part with a window holds at most the blocks that its window needs.

        num_done: tokens that are computed; the next step reads back from there.
        """
        if not self.leaves_entries:
            return
        state, entries_in_window = self.state, self.explainer.machine.function("entries_in_window")
        for part in seq.parts:
            if not part.window:
                continue
            slot = part.slot
            held = state.num_blocks[slot] - state.first[slot]
            done = part.at(num_done)
            bound = entries_in_window(done, state.num_blocks[slot] * self.config.block_size, part.window)
            if self.capabilities.ring_window:
                bound = min(bound, self.explainer.machine.function("blocks_of_ring")(part.window))
            if (slack := self.capabilities.window_slack) is not None:
                first = operations.first_entry_read(self.config.block_size, done, part.window)
                bound = min(bound, state.num_blocks[slot] - first + slack)
            if held > bound:
                reach = self.config.windows[part.kv_group]
                kind = f"a window of {reach}" if reach > 0 else f"attention in chunks of {-reach}"
                sentence = f"$sequence holds $observed blocks, {kind} $expected"
                raise Finding("window-kept", sentence, call=context, expected=bound, observed=held, sequence=part.name)

    # Memory ---------------------------------------------------------------------------------------------------------

    def compare_memory(self, others: Sequence[tuple[str, Worker]]) -> None:
        """After a step every block holds what was written there, also in the workers that took another order.

        others: these workers, each with its order as text.
        """
        memory, written = self.state.memory, self.state.num_written
        wrong = self.worker.wrong_blocks(memory, written, self.is_sparse)
        if wrong:
            raise self._wrong_content(wrong[0], self.worker.slots, "read-back", "")
        for name in {order.partition(" ")[0] for order, _ in others}:
            self.coverage[f"{name} that touch each other"] += 1
        for order, other in others:
            wrong = other.wrong_blocks(memory, written, self.is_sparse)
            if wrong:
                raise self._wrong_content(wrong[0], other.slots, "mapping-hazard-free", order)
        if not self.is_sparse and max(self.state.refcount) >= 3:
            self.coverage["three holders"] += 1
        if self.explainer.observed.free[GPU] == 0:
            self.coverage["pool full"] += 1

    def _wrong_content(self, block: int, slots: list[list[int]], property: str, call: str) -> Finding:
        """Who reads the wrong block, at which position, and what is there instead."""
        expected, found = self.state.memory[block], slots[block]
        slot = next(o for o in range(self.state.num_written[block]) if expected[o] != found[o])
        parts = [part for seq in self.seqs.values() for part in (*seq.parts, seq.prefix) if part and part.slot >= 0]
        reader = next((part for part in parts if self.state.position[part.slot][block] >= 0), None)
        where = f"block {block}, slot {slot}"
        if reader is None:
            who = f"the prefix cache holds {where} for $expected"
            property = "cache-content" if property == "read-back" else property
        else:
            position = self.state.position[reader.slot][block] * reader.layout.num_tokens + slot
            who = f"$sequence reads position {position} ({where})"
        there = {-1: "nothing was written there", -2: "there is junk of a lookahead slot"}.get(found[slot])
        return Finding(
            property,
            f"{who}: {there or 'there is the KV of $observed'}",
            call=call,
            expected=self.identities.describe(expected[slot]),
            observed=there or self.identities.describe(found[slot]),
            blocks=[block],
            sequence=reader.name if reader else "",
        )


def check_kv_groups(config: Config, capabilities: Capabilities) -> None:
    """Raise Unsupported for KV groups that the subject does not have, or that no judge can judge."""
    if len(config.kv_groups) > 1 and not capabilities.kv_groups:
        raise Unsupported("the subject has no several KV groups")
    if fault := fault_of_kv_groups(config):
        raise Unsupported(f"KV groups: {fault}")
    if len({*config.block_sizes}) > 1 and not capabilities.block_sizes:
        raise Unsupported("the subject has no KV groups with blocks of different sizes")
    if config.has_states and not capabilities.states:
        raise Unsupported("the subject has no KV groups with states")
    if config.local_chunk and config.local_chunk % lcm(*config.block_sizes) and len({*config.block_sizes}) > 1:
        raise Unsupported("chunks of local attention are of whole blocks of every group")
    if len(config.kv_groups) > 1 and (config.window is None) == (WINDOW in config.kinds):
        raise Unsupported("a window, and KV groups that have it, come together")
    if len(config.kv_groups) > 1 and (config.local_chunk is None) == (LOCAL in config.kinds):
        raise Unsupported("chunks of local attention, and KV groups that have them, come together")
    if len(config.kv_groups) == 1 and config.window and config.local_chunk:
        raise Unsupported("a single KV group has a window or local attention, not both")
    if len(config.kv_groups) > 1 and config.cross:
        raise Unsupported("an encoder and several KV groups are not judged together")


def has_blocks(tables: list[list[int]] | None) -> bool:
    """Whether a sequence that is shown with these tables has blocks. Without blocks it may have empty ones, or none."""
    return any(tables) if isinstance(tables, list) else bool(tables)


def _what_counts(observed: Observation) -> Observation:
    """The observation without empty tables, and without an order where the order says nothing."""
    observed = unordered(observed)
    if not isinstance(observed.tables, dict):  # types are not checked at each call
        return observed
    return observed._replace(tables={seq: tables for seq, tables in observed.tables.items() if has_blocks(tables)})


def table_changed(call: str, seq: ExpectedSequence, observed: list[list[int]] | None, which: str) -> Finding:
    """The finding that a table of a sequence changed, which should not have; the first one that did."""
    pairs = [(part, new) for part, new in zip(seq.parts, observed or [], strict=False) if part.observed_table != new]
    part, table = pairs[0] if pairs else (seq, "gone")
    return Finding(
        "frame-kept",
        f"the table of $sequence, which {which}, went $expected -> $observed",
        call=call,
        expected=part.observed_table,
        observed=table,
        sequence=part.name,
    )


def leaked(call: str, seq: ExpectedSequence, tables: list[list[int]]) -> Finding:
    """The finding that a sequence that waits has blocks."""
    sentence = "$sequence waits, but has $observed"
    return Finding(
        "no-leak-at-rest",
        sentence,
        call=call,
        observed=tables,
        blocks=[block for table in tables for block in table],
        sequence=f"sequence {seq.id}",
    )


def tables_left(call: str, tables: dict[int, list[list[int]]]) -> Finding:
    """The finding that sequences that are over still have tables."""
    return Finding(
        "no-leak-at-rest", "sequences that are over still have tables: $observed", call=call, observed=tables
    )
