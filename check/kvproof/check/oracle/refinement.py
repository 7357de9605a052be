"""Explain each call of the subject by a program of the specification's rules; what no rule explains is a finding.

After each call the subject is observed. Its choices (which block, which hit, which twin) are read from its tables, and
the specification runs the program of the operation with these choices. If a guard refuses, this is the finding, with
the property that the guard names. After the program, the specification knows every table, refcount, list and counter,
and the subject must show the same. Nothing is searched. The rules are those of the specification.

With several KV groups, a sequence of the subject is one sequence of the specification in each group; all share one
pool. A call concerns all groups, and is explained in this order: entries that left the windows are released in every
group; blocks that were hit are taken in every group; blocks for new content are taken last.
"""

from collections import Counter
from collections.abc import Sequence

from kvproof.check.oracle.early_copies import copied_early, hit_within
from kvproof.check.oracle.expected import ExpectedSequence, PrefixPart
from kvproof.check.oracle.firing import SpecRunner
from kvproof.check.oracle.subject_calls import SubjectCalls
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Config, Observation, Pair
from kvproof.spec.text import operations
from kvproof.spec.text.identity import Identities
from kvproof.spec.text.state import EVICTABLE, FREE, NONE


class Explainer(SpecRunner):
    """Explains the calls of one opened subject, which it observes. observed: what the subject showed last."""

    def __init__(
        self,
        calls: SubjectCalls,
        config: Config,
        identities: Identities,
        coverage: Counter[str],
        num_flights: int = 0,
    ) -> None:
        super().__init__(config, identities, coverage, num_flights)
        self._subject, self._call = calls.subject, calls.call
        self.observed: Observation = self._call("total-calls", "observe")

    def observe(self) -> Observation:
        """Observe the subject."""
        self.observed = self._call("total-calls", "observe")
        return self.observed

    def observe_part(self, seq_ids: list[int]) -> Observation:
        """Observe the counts of free blocks and the tables of these sequences, or of more."""
        self.observed = self.shown_part(seq_ids)
        return self.observed

    def shown_part(self, seq_ids: list[int]) -> Observation:
        """What `observe_part` observes; it is not what the next call is explained by."""
        if hasattr(self._subject, "observe_part"):
            part: Observation = self._call("total-calls", "observe_part", seq_ids)
            return part
        whole: Observation = self._call("total-calls", "observe")
        return whole._replace(refs=None, free_ids=None)

    def take_slot(self, seq: ExpectedSequence) -> None:
        """Assign a part of a sequence its number in the state of the specification."""
        seq.slot = self.free_slots.pop()

    # Tables --------------------------------------------------------------------------------------

    def table_of(self, seq: ExpectedSequence, context: str) -> list[int]:
        """The table that the subject shows for a part of a sequence, with NULL for the null block.

        The entries of a prefix part are NULL too. Raises Finding if there is no table, or if it names a block that does
        not exist.
        """
        table = self.shown_table(seq, context)
        if seq.prefix is not None:
            table = self._without_prefix(seq, seq.prefix, table, context)
        if NULL_BLOCK in table:
            null = self.machine.null
            return [null if block == NULL_BLOCK else block for block in table]
        return table

    def shown_table(self, seq: ExpectedSequence, context: str) -> list[int]:
        """The table as the subject shows it; raises Finding as `table_of` does."""
        tables = self.observed.tables.get(seq.id)
        if not tables:
            sequence = f"sequence {seq.id}"
            raise Finding("frame-kept", "$sequence has no table", call=context, sequence=sequence)
        seq.observed_table = table = tables[seq.kv_group]
        if table and not -1 <= min(table) <= max(table) < self.num_blocks:
            outside = next(block for block in table if not -1 <= block < self.num_blocks)
            raise Finding(
                "no-use-after-free",
                f"the table of $sequence is $observed, of $expected blocks; block {outside} is out of range",
                call=context,
                expected=self.num_blocks,
                observed=table,
                sequence=seq.name,
            )
        return table

    def _without_prefix(self, seq: ExpectedSequence, part: PrefixPart, table: list[int], context: str) -> list[int]:
        """The table with null blocks for the prefix part, whose own entries are as expected.

        While the sequence is swapped, it has none.
        """
        num_entries = part.num_slots // self.block_size
        expected = [NULL_BLOCK] * num_entries
        observed = table[:num_entries]
        if part.slot != NONE:
            expected = self.state.table[part.slot][:num_entries]
        if observed != expected:
            sentence = "$sequence has $expected in its named prefix, and shows $observed"
            raise Finding("frame-kept", sentence, call=context, expected=expected, observed=observed, sequence=seq.name)
        return [NULL_BLOCK] * num_entries + table[num_entries:]

    def admitted(
        self,
        seq: ExpectedSequence,
        hit: int,
        caching: bool,
        context: str,
        hits_in_step: bool = False,
        copies: Sequence[Pair] | None = None,
        num_loaded: int = 0,
    ) -> None:
        """Explain the tables of a sequence that waited. Its first `hit` tokens need not be computed.

        hits_in_step: another sequence of the same step may compute a block that is hit, since a step writes before it
        reads. Such a block is shared, not hit, and `executed` checks that some sequence does compute it. copies: of a
        subject whose hits may end within a block. num_loaded: tokens after the hit that come from elsewhere.
        """
        self.require_possible_hit(hit, len(seq.tokens), copies is not None, context)
        if self.config.drafting and not self.machine.function("leaves_last_found")(hit, self._num_found(seq, hit)):
            sentence = "a hit of $observed tokens, and the cache has no block after them to compute again for the draft"
            raise Finding("hit-computed", sentence, call=context, observed=hit)
        if seq.prefix is not None:
            self._admitted_with_prefix(seq, seq.prefix, hit, context, hits_in_step)
            return
        tables = [self.table_of(part, context) for part in seq.parts]
        for number, part in enumerate(seq.parts):
            table, num_hit = tables[number], hit // part.layout.num_tokens
            if num_hit > len(table):
                sentence = "a hit of $observed tokens, and a table of $expected blocks"
                raise Finding("hit-computed", sentence, call=context, expected=len(table), observed=hit)
            self.take_slot(part)
            tables[number] = table = part.leave_out(table, num_hit, self.machine.null)
            self._hit(part, table, num_hit, context, hits_in_step and not part.layout.is_state, num_loaded > 0)
        for part, table in zip(seq.parts, tables, strict=True):
            self._take(part, table, caching, context)
            self.compare_table(part, table, context)
            if copies is not None:
                hit_within(self, part, hit, copies, context)
            if self.num_done(part) >= part.at(hit) and not num_loaded:
                self.widen(part, context)

    def require_possible_hit(self, hit: int, num_tokens: int, may_end_within: bool, context: str) -> None:
        """Raise Finding for a hit that no prompt of so many tokens can have.

        may_end_within: whether a hit may end within a block; else it is one of whole blocks.
        """
        num_whole = hit // self.block_size * self.block_size if may_end_within and 0 <= hit <= num_tokens else hit
        if not self.machine.function("may_hit")(num_whole, num_tokens):
            raise impossible_hit(hit, num_tokens, self.block_size, context)

    def _admitted_with_prefix(
        self, seq: ExpectedSequence, part: PrefixPart, hit: int, context: str, hits_in_step: bool
    ) -> None:
        """Explain the table of a sequence whose entries in a named prefix are a part of their own."""
        self.begin_prefix(seq, part, hit // self.block_size, context, hits_in_step)
        table, first = self.table_of(seq, context), part.num_slots // self.block_size
        self.take_slot(seq)
        seq.window = 1  # so it does not read what the part reads
        program = operations.hit_past_window(self.block_size, seq.slot, seq.identities, first, first, table.__getitem__)
        self.run(program, context)
        self._take(seq, table, False, context)
        self.compare_table(seq, table, context)

    def begin_prefix(
        self, seq: ExpectedSequence, part: PrefixPart, num_hit: int, context: str, hits_in_step: bool
    ) -> None:
        """The entries in the prefix are those that the subject shows; the first `num_hit` are hit."""
        table, num_entries = self.shown_table(seq, context), part.num_slots // self.block_size
        if num_hit > num_entries:
            sentence = "a hit of $observed tokens, and a prefix of $expected"
            raise Finding(
                "hit-computed", sentence, call=context, expected=part.num_slots, observed=num_hit * self.block_size
            )
        self.take_slot(part)
        self._hit(part, table[:num_entries], num_hit, context, hits_in_step)
        self._take(part, table[:num_entries], False, context)

    def _num_found(self, seq: ExpectedSequence, hit: int) -> int:
        """The tokens of a prompt that the cache has, its first `hit` tokens and the block after them considered."""
        state, size = self.state, self.block_size
        parts = [part for part in seq.parts if not part.layout.is_state]  # draft models have no states
        rows = [operations.row_of(part.whole, hit // part.layout.num_tokens, size) for part in parts]
        gpu = range(self.config.num_gpu_blocks)
        is_found = all(any(operations.holds_content(state, block, row) for block in gpu) for row in rows)
        return hit + size if is_found else hit

    def widen(self, seq: ExpectedSequence, context: str) -> None:
        """Set the window of a part once everything that was hit behind a smaller one may be read."""
        if self.state.window[seq.slot] != seq.window:
            self.run(iter([("widen", (seq.slot, seq.window))]), context)

    def _hit(
        self,
        seq: ExpectedSequence,
        table: list[int],
        num_hit: int,
        context: str,
        hits_in_step: bool,
        is_loaded: bool = False,
    ) -> None:
        """Begin one part, with the entries that were hit.

        is_loaded: KV from elsewhere follows, and who reads it may not read back as far as the hits.
        """
        state, size, named = self.state, self.block_size, table.__getitem__
        first = self._num_left(table)
        if is_loaded:
            num_hit = max(first, num_hit)
        elif first and not num_hit:
            program = operations.admit_past_window(
                state, size, seq.slot, seq.window, seq.identities, first, len(table), named
            )
            self.run(program, context)
            return
        first = min(first, num_hit)
        if hits_in_step:
            of_others = (
                i for i in range(first, num_hit) if table[i] < self.num_blocks and not state.computed[table[i]]
            )
            num_hit = next(of_others, num_hit)
        if first or is_loaded:
            self.run(operations.hit_past_window(size, seq.slot, seq.identities, first, num_hit, named), context)
            self.coverage["hit past a window"] += 1
        else:
            program = operations.admit_sequence(
                state, size, seq.slot, seq.window, seq.identities, num_hit, num_hit, named, False
            )
            self.run(program, context)

    def _take(self, seq: ExpectedSequence, table: list[int], caching: bool, context: str) -> None:
        """Give one part the entries that it does not have yet."""
        state, slot, named = self.state, seq.slot, table.__getitem__
        self.run(
            operations.know_tokens(state, self.block_size, slot, seq.identities, len(table), named, caching), context
        )
        self.run(operations.reserve_entries(state, slot, len(table), named), context)

    def extended(self, seq: ExpectedSequence, copies: Sequence[Pair], caching: bool, context: str) -> None:
        """Explain the new tables of a running sequence that got slots: released and new entries, copies, lookahead."""
        state = self.state
        changed = self._slid(seq, context)
        if not changed:
            return
        self.copied.clear()
        for part, table in changed:
            if copies:
                copied_early(self, part, table, copies, context)
            if state.num_blocks[part.slot] * self.block_size > len(part.identities):
                self.run(operations.drop_reserved(state, part.slot, self._num_kept(part, table)), context)
            self._take(part, table, caching, context)
            self.compare_table(part, table, context)
        for _, target in copies:  # a copy onto a block that the same call released: its cached content is lost
            if state.status[target] == EVICTABLE:
                self.run(operations.take(state, target), context)
        for pair in self.copied:
            if pair not in copies:
                sentence = f"an entry went {pair[0]} -> {pair[1]}, and no such copy was emitted"
                raise Finding("cow-copied", sentence, call=context, expected=pair, observed=copies, blocks=pair)

    def _slid(self, seq: ExpectedSequence, context: str) -> list[tuple[ExpectedSequence, list[int]]]:
        """Release the entries that left the windows; return the parts whose tables changed, with those tables."""
        state, changed = self.state, []
        for part in seq.parts:
            old, slot = part.observed_table, part.slot
            table = part.leave_out(self.table_of(part, context), len(old), self.machine.null)
            num_known = state.num_full[slot] * self.block_size + state.num_filled[slot]
            if table == old and num_known == len(part.identities):
                continue
            self._leave(part, table, context)
            changed.append((part, table))
        return changed

    def _leave(self, part: ExpectedSequence, table: list[int], context: str) -> None:
        """Release the entries of a part that left its window, by this table."""
        state, slot, first = self.state, part.slot, self._num_left(table)
        if self.machine.null in table[first:] and not self.machine.function("can_still_be_read")(state, slot, first):
            sentence = "$sequence gave up a later entry, and keeps entry $observed, which no later token reads"
            raise Finding("window-kept", sentence, call=context, observed=first, sequence=part.name)
        if first != state.first[slot]:
            self.run(operations.slide_window(state, slot, first), context)
            what = "state" if part.layout.leaves_out else "window" if part.window > 0 else "local attention"
            self.coverage[f"{what} left an entry"] += 1

    def exchanged(self, seq: ExpectedSequence, context: str) -> None:
        """Explain entries that left a window, or name cached blocks of equal content, after a step has filled them."""
        for part in seq.parts:
            old = part.observed_table
            table = self.table_of(part, context)
            if table == old:
                continue
            if len(table) == len(old):
                self._leave(part, table, context)
                self.run(operations.exchange_entries(self.state, part.slot, table.__getitem__), context)
                self.coverage["exchange after a step"] += 1
            self.compare_table(part, table, context)

    def exchanged_before(self, seq: ExpectedSequence, context: str) -> None:
        """Explain that entries were left, or exchanged, before the sequence got those that it shows in addition.

        A block that is free is no twin of any other; then this explains no exchange, and the table is compared later.
        """
        for part in seq.parts:
            old, table = part.observed_table, self.table_of(part, context)
            new, part.observed_table = part.observed_table[: len(old)], old
            if new == old or len(new) != len(old):
                continue
            self._leave(part, table[: len(old)], context)
            changed = [two for one, two in zip(old, new, strict=True) if one != two and two != NULL_BLOCK]
            if any(self.state.status[block] == FREE for block in changed):
                continue
            part.observed_table = new
            if changed:
                self.run(operations.exchange_entries(self.state, part.slot, table.__getitem__), context)
                self.coverage["exchange when scheduled"] += 1
            self.compare_table(part, table[: len(old)], context)

    def gave_back(self, seq: ExpectedSequence, context: str) -> None:
        """Explain that a sequence gave reserved entries back, from the last one on."""
        state = self.state
        for part in seq.parts:
            table = part.without_left_out(self.table_of(part, context))
            num_kept = max(len(table), state.num_full[part.slot] + (state.num_filled[part.slot] > 0))
            self.run(operations.drop_reserved(state, part.slot, num_kept), context)
            self.compare_table(part, table, context)

    def _num_left(self, table: list[int]) -> int:
        """How many entries left the window: the null blocks at the beginning of a table."""
        first, null = 0, self.machine.null
        while first < len(table) and table[first] == null:
            first += 1
        return first

    def _num_kept(self, seq: ExpectedSequence, table: list[int]) -> int:
        """How many entries come before the first reserved one that was released or replaced."""
        state, slot = self.state, seq.slot
        last = state.num_blocks[slot]
        for index in range(self.blocks_for(len(seq.identities)), last):
            if index >= len(table) or table[index] != state.table[slot][index]:
                return index
        return last

    def compare_table(self, seq: ExpectedSequence, table: list[int], context: str) -> None:
        """The subject must show the table that the program has made."""
        expected = self.state.table[seq.slot][: self.state.num_blocks[seq.slot]]
        if table == expected:
            return
        if len(table) != len(expected):
            sentence, pair = "$sequence has $expected entries, and shows $observed", (len(expected), len(table))
        else:
            index = next(i for i, pair in enumerate(zip(table, expected, strict=True)) if pair[0] != pair[1])
            sentence = f"$sequence has block $expected at entry {index}, and shows $observed"
            pair = expected[index], table[index]
        raise Finding(
            "frame-kept",
            f"{sentence}; no rule explains it",
            call=context,
            expected=pair[0],
            observed=pair[1],
            sequence=seq.name,
        )

    def require_same_tables(self, first: ExpectedSequence, seq: ExpectedSequence, context: str) -> None:
        """Sequences that are admitted together have one prompt, and so one table."""
        if seq.tables != first.tables:
            sentence = "tables $expected and $observed of one prompt"
            raise Finding("sharing-equal", sentence, call=context, expected=first.tables, observed=seq.tables)

    def forked(self, parent: ExpectedSequence, child: ExpectedSequence, context: str) -> None:
        """Explain a child that shares every block of its parent."""
        if parent.prefix is not None:
            child.prefix, child.window = PrefixPart(child, parent.prefix.num_slots), parent.window
            self.take_slot(child.prefix)
            self.run(operations.fork_sequence(parent.prefix.slot, child.prefix.slot), context)
        for old, new in zip(parent.parts, child.parts, strict=True):
            self.take_slot(new)
            self.run(operations.fork_sequence(old.slot, new.slot), context)
            self.table_of(new, context)

    def freed(self, seq: ExpectedSequence, context: str) -> None:
        """Explain that a sequence released every block."""
        if seq.prefix is not None:
            self.end_prefix(seq.prefix, context)
            seq.prefix = None
        for part in seq.parts:
            self.run(operations.free_sequence(self.state, part.slot), context)
            self.free_slots.append(part.slot)
            part.release()

    def end_prefix(self, part: PrefixPart, context: str) -> None:
        """The sequence gives up its references to the blocks of its prefix, unless it is swapped and has none."""
        if part.slot != NONE:
            self.run(operations.free_sequence(self.state, part.slot), context)
            self.free_slots.append(part.slot)
            part.release()

    def num_done(self, seq: ExpectedSequence) -> int:
        """The slots of a part that are computed."""
        return self.state.done_full[seq.slot] * self.block_size + self.state.done_filled[seq.slot]


def impossible_hit(hit: int, num_tokens: int, block_size: int, call: str) -> Finding:
    """The finding that a look-up reports a hit that no prompt of so many tokens can have."""
    if hit % block_size:
        sentence = "a hit of $observed tokens, and a hit counts the tokens of whole blocks, of $expected tokens each"
        return Finding("hit-computed", sentence, call=call, expected=block_size, observed=hit)
    sentence = "a hit of $observed tokens on a prompt of $expected"
    return Finding("hit-computed", sentence, call=call, expected=num_tokens, observed=hit)
