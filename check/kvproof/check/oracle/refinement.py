"""Explain each call of the subject by a program of the specification's rules; what no rule explains is a finding.

After each call the subject is observed. Its choices (which block, which hit, which twin) are read from its tables, and
the specification runs the program of the operation with these choices. If a guard refuses, this is the finding, with
the property that the guard names. After the program, the specification knows every table, refcount, list and counter,
and the subject must show the same. Nothing is searched. The rules are those of the specification.

With several KV groups, a sequence of the subject is one sequence of the specification in each group; all share one
pool. A call concerns all groups, and is explained in this order: entries that left the windows are released in every
group; blocks that were hit are taken in every group; blocks for new content are taken last.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain, pairwise
from operator import itemgetter

from kvproof.check.oracle.early_copies import EarlyCopies
from kvproof.check.oracle.expected import ExpectedSequence, PrefixPart
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Pair
from kvproof.spec.text import mapping, operations
from kvproof.spec.text.state import EVICTABLE, GPU, HOST, NONE, RESERVED, USED

DEVICE = ("GPU", "host")


class Explainer(EarlyCopies):
    """Explains the calls of one opened subject."""

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
        shown = table[:num_entries]
        if part.slot != NONE:
            expected = self.state.table[part.slot][:num_entries]
        if shown != expected:
            sentence = "$sequence has $expected in its named prefix, and shows $observed"
            raise Finding("frame-kept", sentence, call=context, expected=expected, observed=shown, sequence=seq.name)
        return [NULL_BLOCK] * num_entries + table[num_entries:]

    def _set_aside(self, reserved: tuple[int, ...]) -> None:
        """The manager reserves more blocks for itself. The same call may have released one of them."""
        status = self.state.status
        for block in [one for one in reserved if not (0 <= one < len(status) and status[one] == RESERVED)]:
            self.run(operations.set_aside(self.state, block), "keeping a block for itself")
        self.num_reserved = len(reserved)

    def admitted(
        self,
        seq: ExpectedSequence,
        hit: int,
        caching: bool,
        context: str,
        hits_in_step: bool = False,
        copies: Sequence[Pair] | None = None,
    ) -> None:
        """Explain the tables of a sequence that waited. Its first `hit` tokens need not be computed.

        hits_in_step: another sequence of the same step may compute a block that is hit, since a step writes before it
        reads. Such a block is shared, not hit, and `executed` checks that some sequence does compute it. copies: of a
        subject whose hits may end within a block.
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
            self._hit(part, table, num_hit, context, hits_in_step and not part.layout.is_state)
        for part, table in zip(seq.parts, tables, strict=True):
            self._take(part, table, caching, context)
            self._compare_table(part, table, context)
            if copies is not None:
                self.hit_within(part, hit, copies, context)
            if self._num_done(part) >= part.at(hit):
                self._widen(part, context)

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
        self._begin_prefix(seq, part, hit // self.block_size, context, hits_in_step)
        table, first = self.table_of(seq, context), part.num_slots // self.block_size
        self.take_slot(seq)
        seq.window = 1  # so it does not read what the part reads
        program = operations.hit_past_window(self.block_size, seq.slot, seq.identities, first, first, table.__getitem__)
        self.run(program, context)
        self._take(seq, table, False, context)
        self._compare_table(seq, table, context)

    def _begin_prefix(
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

    def _widen(self, seq: ExpectedSequence, context: str) -> None:
        """Set the window of a part once everything that was hit behind a smaller one may be read."""
        if self.state.window[seq.slot] != seq.window:
            self.run(iter([("widen", (seq.slot, seq.window))]), context)

    def _hit(self, seq: ExpectedSequence, table: list[int], num_hit: int, context: str, hits_in_step: bool) -> None:
        """Begin one part, with the entries that were hit."""
        state, size, named = self.state, self.block_size, table.__getitem__
        first = self._num_left(table)
        if first and not num_hit:
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
        if first:
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
                self.copied_early(part, table, copies, context)
            if state.num_blocks[part.slot] * self.block_size > len(part.identities):
                self.run(operations.drop_reserved(state, part.slot, self._num_kept(part, table)), context)
            self._take(part, table, caching, context)
            self._compare_table(part, table, context)
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
            first = self._num_left(table)
            if first != state.first[slot]:
                self.run(operations.slide_window(state, slot, first), context)
                what = "state" if part.layout.leaves_out else "window" if part.window > 0 else "local attention"
                self.coverage[f"{what} left an entry"] += 1
            changed.append((part, table))
        return changed

    def exchanged(self, seq: ExpectedSequence, context: str) -> None:
        """Explain entries that name cached blocks of equal content after a step has filled them."""
        for part in seq.parts:
            old = part.observed_table
            table = self.table_of(part, context)
            if table == old:
                continue
            if len(table) == len(old):
                self.run(operations.exchange_entries(self.state, part.slot, table.__getitem__), context)
                self.coverage["exchange after a step"] += 1
            self._compare_table(part, table, context)

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

    def _compare_table(self, seq: ExpectedSequence, table: list[int], context: str) -> None:
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
            self._end_prefix(seq.prefix, context)
            seq.prefix = None
        for part in seq.parts:
            self.run(operations.free_sequence(self.state, part.slot), context)
            self.free_slots.append(part.slot)
            part.release()

    def _end_prefix(self, part: PrefixPart, context: str) -> None:
        """The sequence gives up its references to the blocks of its prefix, unless it is swapped and has none."""
        if part.slot != NONE:
            self.run(operations.free_sequence(self.state, part.slot), context)
            self.free_slots.append(part.slot)
            part.release()

    def swapped(
        self, seqs: Sequence[ExpectedSequence], pairs: Sequence[Pair], is_out: bool, context: str, hits_in_step: bool
    ) -> list[Pair]:
        """Explain that sequences moved to the other device along `pairs`, which are returned with absolute ids.

        hits_in_step: a swap may copy into a block of equal content that its holders have not computed yet.
        """
        sizes = (self.config.num_gpu_blocks, self.config.num_host_blocks)
        sources, targets = sizes if is_out else sizes[::-1]
        bases = (0, sizes[0]) if is_out else (sizes[0], 0)
        for source, target in pairs:
            if not (mapping.is_block_of(source, sources) and mapping.is_block_of(target, targets)):
                sentence = f"pair $observed is outside {sources} x {targets} blocks"
                raise Finding("swap-mapping", sentence, call=context, observed=(source, target))
        moved = {source + bases[0]: target + bases[1] for source, target in pairs}
        if not _are_one_to_one(pairs):
            sentence = "the pairs are not one-to-one: $observed"
            raise Finding("swap-mapping", sentence, call=context, observed=sorted(set(pairs)))
        tables = {}
        parts = [part for seq in seqs for part in seq.parts]
        for seq in parts:
            old = seq.observed_table
            if (prefix := seq.prefix) is not None:
                num_entries = prefix.num_slots // self.block_size
                old = [NULL_BLOCK] * num_entries + old[num_entries:]
                if is_out:
                    self._end_prefix(prefix, context)
                else:
                    self._begin_prefix(seq, prefix, num_entries, context, False)
            tables[seq.slot] = table = self.table_of(seq, context)
            if len(table) != len(old):
                raise Finding(
                    "swap-mapping",
                    "the table of $sequence went $expected -> $observed",
                    call=context,
                    expected=old,
                    observed=seq.observed_table,
                    sequence=seq.name,
                )
            for index, (before, after) in enumerate(zip(old, seq.observed_table, strict=True)):
                if before != NULL_BLOCK and moved.get(before) != after:
                    if is_out and before == after and before not in moved:
                        self._require_unshared(before, parts, context)
                    pairs_say = f"the pairs map {before} to $expected" if before in moved else "no pair moves it"
                    raise Finding(
                        "swap-mapping",
                        f"entry {index} of $sequence went {before} -> $observed, but {pairs_say} (absolute ids)",
                        call=context,
                        expected=moved.get(before),
                        observed=after,
                        blocks=(before, after),
                        sequence=seq.name,
                    )
        slots = [part.slot for part in parts]
        if hits_in_step:
            for slot in slots:
                self._fill_twins(slot, tables[slot], context)
        self.run(operations.swap_group(self.state, self.block_size, slots, lambda s, i: tables[s][i]), context)
        if self.config.caching:
            for slot in slots:
                self.run(operations.register_entries(self.state, self.block_size, slot), context)
        for part in parts:
            self._compare_table(part, tables[part.slot], context)
        return [(source + bases[0], target + bases[1]) for source, target in pairs]

    def _require_unshared(self, block: int, parts: Sequence[ExpectedSequence], context: str) -> None:
        """Raise AdapterError if a swap-out left a block on the GPU that other sequences hold too.

        The table is then of blocks of both devices, which the specification cannot say of a sequence; nothing is lost,
        as long as the manager still counts the references of the sequences that were swapped.
        """
        own = sum(block in part.observed_table for part in parts)
        refs = self.observed.refs
        if self.state.refcount[block] > own and (refs is None or refs[block] == self.state.refcount[block]):
            raise AdapterError(
                f"{context} left block {block}, which other sequences hold too, on the GPU; a swap moves all blocks of "
                "a group, and one that leaves shared blocks is not judged: declare no swap, or let make raise "
                "Unsupported for a configuration with swap in which blocks can be shared"
            )

    def _fill_twins(self, slot: int, table: list[int], context: str) -> None:
        """Explain copies into blocks of equal content that are behind, as if their holders computed them now.

        When a holder computes, it writes the same content again, so it notices nothing.
        Source: vLLM 0.10.2, `PrefixCachingBlockAllocator.swap_in` in vllm/core/block/prefix_caching_block.py.
        """
        state, size = self.state, self.block_size
        num_full = state.done_full[slot]
        for index in range(state.first[slot], state.num_full[slot]):
            twin = table[index]
            num_copied = size if index < num_full else state.done_filled[slot] if index == num_full else 0
            if num_copied <= state.num_written[twin] or not operations.is_rehit(state, size, slot, index, twin):
                continue
            has_entry = (state.first[seq] <= index < state.num_blocks[seq] for seq in range(len(state.table)))
            holders = [seq for seq, has in enumerate(has_entry) if has and state.table[seq][index] == twin]
            holder = max(holders, key=state.done_full.__getitem__)
            first = state.done_full[holder]
            if all(state.num_written[block] == size for block in state.table[holder][first:index]):
                num_tokens = (index - first) * size - state.done_filled[holder]
                self.run(operations.catch_up(state, size, holder, num_tokens), context)
                num_done = state.done_filled[holder]
                self.run(operations.compute_tokens(state, size, holder, num_copied - num_done), context)
                self.coverage["swap into a block that is behind"] += 1

    def executed(self, writes: Sequence[tuple[ExpectedSequence, int, int]]) -> None:
        """Explain a step that computed the tokens of each sequence from position `start` up to `stop`.

        A sequence may share a block that another one computes. That happens in the same step at the latest, since a
        step writes before it reads.
        """
        behind = []
        for seq, start, stop in writes:
            for part in seq.parts if seq.prefix is None else (seq.prefix, seq):
                if self._num_done(part) < part.at(start):
                    behind.append((part, start, stop))
                else:
                    self._computed(part, stop)
        while behind:
            behind.sort(key=lambda write: not self._can_catch_up(write[0], write[1]))
            seq, start, stop = behind.pop(0)
            program = operations.catch_up(self.state, self.block_size, seq.slot, seq.at(start) - self._num_done(seq))
            self.run(program, f"run: sequence {seq.id}")
            self._computed(seq, stop)

    def _num_done(self, seq: ExpectedSequence) -> int:
        return self.state.done_full[seq.slot] * self.block_size + self.state.done_filled[seq.slot]

    def _can_catch_up(self, seq: ExpectedSequence, start: int) -> bool:
        state, size, num_slots = self.state, self.block_size, seq.at(start)
        return all(
            state.num_written[state.table[seq.slot][index]] >= min(size, num_slots - index * size)
            for index in range(state.done_full[seq.slot], self.blocks_for(num_slots))
        )

    def _computed(self, seq: ExpectedSequence, stop: int) -> None:
        state, size = self.state, self.block_size
        self._widen(seq, "run")
        before = state.done_full[seq.slot]
        num_tokens = seq.at(stop) - self._num_done(seq)
        if num_tokens > 0:
            self.run(operations.compute_tokens(state, size, seq.slot, num_tokens), f"run: sequence {seq.id}")
            if self.config.caching and not seq.is_encoder:
                self.run(operations.mark_computed(state, size, seq.slot, before), f"run: sequence {seq.id}")
                if seq.layout.num_tokens < seq.layout.num_slots:
                    self._note_unaligned(seq, stop)

    def _note_unaligned(self, seq: ExpectedSequence, stop: int) -> None:
        """Remember the computed blocks from which no hit of the sequence is made yet: a hit ends at a common boundary.

        A manager may cache them at once, or when the boundary is reached, so whether it finds them is not judged.
        """
        state, slot = self.state, seq.slot
        last = self.blocks_for(seq.at(stop // self.block_size * self.block_size))
        for index in range(state.first[slot], state.done_full[slot]):
            note = self.unaligned.discard if index < last else self.unaligned.add
            note(state.table[slot][index])

    # Refcounts, free lists and counters -----------------------------------------------------------------------------

    def compare_pool(self, context: str, is_at_rest: Callable[[], bool]) -> None:
        """The refcounts, free lists and counters of the subject must be those of the specification."""
        state, observed = self.state, self.observed
        if self.order is not None:
            self.order.judge(context)
        if len(observed.reserved) != self.num_reserved:
            self._set_aside(observed.reserved)
        if observed.refs is not None and observed.refs != state.refcount:
            self._compare_refcounts(observed.refs, context)
        if observed.free_ids is not None:
            self._compare_free_ids(observed.free_ids, context)
        for pool in (GPU, HOST):
            unused = self.unused_in(state, pool)
            if observed.free[pool] != unused:
                is_early = observed.free[pool] > unused and any(map(self._is_left_in_flight, range(self.num_blocks)))
                raise Finding(
                    "in-flight-held" if is_early else "no-leak-at-rest" if is_at_rest() else "conservation",
                    f"{DEVICE[pool]}: {state.count[pool][USED]} blocks in tables, so $expected are free; "
                    "the subject counts $observed",
                    call=context,
                    expected=unused,
                    observed=observed.free[pool],
                )

    def _compare_refcounts(self, refs: list[int], context: str) -> None:
        expected = self.state.refcount
        for block in range(max(len(refs), len(expected))):
            one, other = (r[block] if block < len(r) else None for r in (expected, refs))
            if one != other:
                if one is not None and other is not None and one < other <= one + self.state.pins[block]:
                    continue  # the subject may count what is in flight as holders
                raise Finding(
                    "refcount-exact",
                    f"refcount of block {block}: the specification says $expected, the subject $observed",
                    call=context,
                    expected=one,
                    observed=other,
                    blocks=[block],
                )

    @cached_property
    def _blocks(self) -> frozenset[int]:
        return frozenset(range(self.num_blocks))

    def _compare_free_ids(self, free_ids: list[int], context: str) -> None:
        status, pins, num_blocks, ids = self.state.status, self.state.pins, self.num_blocks, set(free_ids)
        is_counted = len(free_ids) == len(ids) == sum(self.observed.free) and ids <= self._blocks
        if is_counted and not (self.has_flights and any(pins)) and USED not in map(status.__getitem__, free_ids):
            return  # what is looked for below is not there
        for block in free_ids:
            if not 0 <= block < num_blocks:
                sentence = "the free list names block $observed, of $expected; it is out of range"
                raise Finding("lists-agree", sentence, call=context, expected=num_blocks, observed=block)
            if pins[block] and self._is_left_in_flight(block):
                sentence = f"block {block} is free, and in use by what is in flight"
                raise Finding("in-flight-held", sentence, call=context, blocks=[block])
            if status[block] == USED:
                sentence = f"block {block} is free, and in a live table"
                raise Finding("no-use-after-free", sentence, call=context, blocks=[block])
        if len(ids) != len(free_ids):
            sentence = "the free list names a block twice: $observed"
            raise Finding("lists-agree", sentence, call=context, observed=sorted(free_ids))
        if len(free_ids) != sum(self.observed.free):
            sentence, num_free = "$observed blocks in the free lists, $expected counted", sum(self.observed.free)
            raise Finding("lists-agree", sentence, call=context, expected=num_free, observed=len(free_ids))


def impossible_hit(hit: int, num_tokens: int, block_size: int, call: str) -> Finding:
    """The finding that a look-up reports a hit that no prompt of so many tokens can have."""
    if hit % block_size:
        sentence = "a hit of $observed tokens, and a hit counts the tokens of whole blocks, of $expected tokens each"
        return Finding("hit-computed", sentence, call=call, expected=block_size, observed=hit)
    sentence = "a hit of $observed tokens on a prompt of $expected"
    return Finding("hit-computed", sentence, call=call, expected=num_tokens, observed=hit)


def _are_one_to_one(pairs: Sequence[Pair]) -> bool:
    """Whether every two pairs are one-to-one. Neighbours by source and by target are enough."""
    by_source, by_target = sorted(pairs), sorted(pairs, key=itemgetter(1))
    neighbours = chain(pairwise(by_source), pairwise(by_target))
    return all(mapping.are_one_to_one(*one, *other) for one, other in neighbours)
