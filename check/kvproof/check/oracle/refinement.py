"""Explanation: what a call has shown is the work of a program of the specification's own rules, or it is a finding.

After each call the subject is observed. The choices it made (which block, which hit, which twin) are read off the
tables it shows; with them the program of the operation is run by the specification. A guard that refuses is the
finding, with the property that the guard names. When the program has run, the specification knows every table,
refcount, list and counter; each must be what the subject shows. Nothing is searched, and no rule is stated here.

With several KV groups a sequence of the subject is one sequence of the specification in each group, all over one pool.
One call is about all of them, and does so in this order: what the windows left is given up in every group; then what
was hit is taken in every group; and then only are blocks taken for something new.
"""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from operator import itemgetter

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.firing import Firing
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Pair
from kvproof.spec.text import mapping, operations
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, HOST, USED

DEVICE = ("GPU", "host")


class Explainer(Firing):
    """What the calls of one opened subject have shown, explained."""

    def take_slot(self, seq: ExpectedSequence) -> None:
        """Give a part of a sequence its number in the state of the specification."""
        seq.slot = self.free_slots.pop()

    # What a call has shown --------------------------------------------------------------------------------------

    def table_of(self, seq: ExpectedSequence, context: str) -> list[int]:
        """The table the subject shows for a part of a sequence, NULL for the null block; ids in range."""
        tables = self.observed.tables.get(seq.id)
        if tables is None:
            raise Finding("frame-kept", f"{context}: sequence {seq.id} has no table")
        seq.observed_table = table = tables[seq.kv_group]
        if table and not -1 <= min(table) <= max(table) < self.num_blocks:
            raise Finding(
                "no-use-after-free", f"{context}: the table of {seq.name} is {table}, of {self.num_blocks} blocks"
            )
        if NULL_BLOCK in table:
            null = self.machine.null
            return [null if block == NULL_BLOCK else block for block in table]
        return table

    def _set_aside(self, reserved: tuple[int, ...]) -> None:
        """Blocks that the manager keeps for itself from now on; one that the same call gave up may be among them."""
        for block in reserved[self.num_reserved :]:
            self.run(operations.set_aside(self.state, block), "keeping a block for itself")
        self.num_reserved = len(reserved)

    def admitted(
        self, seq: ExpectedSequence, hit: int, caching: bool, context: str, hits_in_step: bool = False
    ) -> None:
        """A waiting sequence got its tables, the first `hit` tokens of which need not be computed.

        hits_in_step: what is hit may be computed by another in this very step, as a step writes before it reads. Such
        a block is shared, not hit, and `executed` holds that somebody does compute it.
        """
        size = self.block_size
        if not 0 <= hit <= len(seq.tokens) or hit % size:
            raise Finding("hit-computed", f"{context}: a hit of {hit} tokens on a prompt of {len(seq.tokens)}")
        tables = [self.table_of(part, context) for part in seq.parts]
        for part, table in zip(seq.parts, tables, strict=True):
            if hit // size > len(table):
                raise Finding("hit-computed", f"{context}: a hit of {hit} tokens, and a table of {len(table)} blocks")
            self.take_slot(part)
            self._hit(part, table, hit // size, context, hits_in_step)
        for part, table in zip(seq.parts, tables, strict=True):
            self._take(part, table, caching, context)
            self._compare_table(part, table, context)
            if self._num_done(part) >= hit:
                self._widen(part, context)

    def _widen(self, seq: ExpectedSequence, context: str) -> None:
        """All that was hit past the window may be read: only now the sequence reads as far back as its window."""
        if self.state.window[seq.slot] != seq.window:
            self.run(iter([("widen", (seq.slot, seq.window))]), context)

    def _hit(self, seq: ExpectedSequence, table: list[int], num_hit: int, context: str, hits_in_step: bool) -> None:
        """One part comes to be, with the entries that were hit."""
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
        """One part gets the entries that it does not have yet."""
        state, slot, named = self.state, seq.slot, table.__getitem__
        self.run(
            operations.know_tokens(state, self.block_size, slot, seq.identities, len(table), named, caching), context
        )
        self.run(operations.reserve_entries(state, slot, len(table), named), context)

    def extended(self, seq: ExpectedSequence, copies: Sequence[Pair], caching: bool, context: str) -> None:
        """A running sequence got slots: what the windows left, new entries, copies, exchanges, lookahead."""
        state = self.state
        changed = self._slid(seq, context)
        if not changed:
            return
        self.copied.clear()
        for part, table in changed:
            if state.num_blocks[part.slot] * self.block_size > len(part.identities):
                self.run(operations.drop_reserved(state, part.slot, self._num_kept(part, table)), context)
            self._take(part, table, caching, context)
            self._compare_table(part, table, context)
        for _, target in copies:  # onto a block that the same call gave up again: what it was cached under is gone
            if state.status[target] == EVICTABLE:
                self.run(operations.take(state, target), context)
        for pair in self.copied:
            if pair not in copies:
                raise Finding(
                    "cow-copied", f"{context}: an entry went {pair[0]} -> {pair[1]}, and no such copy was emitted"
                )

    def _slid(self, seq: ExpectedSequence, context: str) -> list[tuple[ExpectedSequence, list[int]]]:
        """What the windows left is given up; the parts of which more is to be explained, with their tables."""
        state, changed = self.state, []
        for part in seq.parts:
            old, slot = part.observed_table, part.slot
            table = self.table_of(part, context)
            num_known = state.num_full[slot] * self.block_size + state.num_filled[slot]
            if table == old and num_known == len(part.identities):
                continue
            first = self._num_left(table)
            if first != state.first[slot]:
                self.run(operations.slide_window(state, slot, first), context)
                self.coverage["window left an entry"] += 1
            changed.append((part, table))
        return changed

    def exchanged(self, seq: ExpectedSequence, context: str) -> None:
        """After a step that filled them, entries of a sequence name cached blocks of equal content."""
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
        """Entries that the window has left: the null blocks that a table begins with."""
        first, null = 0, self.machine.null
        while first < len(table) and table[first] == null:
            first += 1
        return first

    def _num_kept(self, seq: ExpectedSequence, table: list[int]) -> int:
        """Entries up to the first reserved one that was given back or replaced."""
        state, slot = self.state, seq.slot
        last = state.num_blocks[slot]
        for index in range(self.blocks_for(len(seq.identities)), last):
            if index >= len(table) or table[index] != state.table[slot][index]:
                return index
        return last

    def _compare_table(self, seq: ExpectedSequence, table: list[int], context: str) -> None:
        """The table shown is the one that the program has made."""
        expected = self.state.table[seq.slot][: self.state.num_blocks[seq.slot]]
        if table == expected:
            return
        if len(table) != len(expected):
            text = f"{len(expected)} entries, and shows {len(table)}"
        else:
            index = next(i for i, pair in enumerate(zip(table, expected, strict=True)) if pair[0] != pair[1])
            text = f"block {expected[index]} at entry {index}, and shows {table[index]}"
        raise Finding("frame-kept", f"{context}: {seq.name} has {text}; no rule explains it")

    def forked(self, parent: ExpectedSequence, child: ExpectedSequence, context: str) -> None:
        """A child shares every block of its parent."""
        for old, new in zip(parent.parts, child.parts, strict=True):
            self.take_slot(new)
            self.run(operations.fork_sequence(old.slot, new.slot), context)
            self.table_of(new, context)

    def freed(self, seq: ExpectedSequence, context: str) -> None:
        """A sequence gave up every block."""
        for part in seq.parts:
            self.run(operations.free_sequence(self.state, part.slot), context)
            self.free_slots.append(part.slot)
            part.slot, part.observed_table = -1, []

    def swapped(
        self, seqs: Sequence[ExpectedSequence], pairs: Sequence[Pair], is_out: bool, context: str
    ) -> list[Pair]:
        """A group moved to the other device along `pairs`; returned as absolute ids."""
        sizes = (self.config.num_gpu_blocks, self.config.num_host_blocks)
        sources, targets = sizes if is_out else sizes[::-1]
        bases = (0, sizes[0]) if is_out else (sizes[0], 0)
        for source, target in pairs:
            if not (mapping.is_block_of(source, sources) and mapping.is_block_of(target, targets)):
                raise Finding(
                    "swap-mapping", f"{context}: pair ({source}, {target}) is outside {sources} x {targets} blocks"
                )
        moved = {source + bases[0]: target + bases[1] for source, target in pairs}
        if not _are_one_to_one(pairs):
            raise Finding("swap-mapping", f"{context}: the pairs are not one-to-one: {sorted(set(pairs))}")
        tables = {}
        parts = [part for seq in seqs for part in seq.parts]
        for seq in parts:
            old = seq.observed_table
            tables[seq.slot] = table = self.table_of(seq, context)
            if len(table) != len(old):
                raise Finding("swap-mapping", f"{context}: the table of {seq.name} went {old} -> {seq.observed_table}")
            for index, (before, after) in enumerate(zip(old, seq.observed_table, strict=True)):
                if before != NULL_BLOCK and moved.get(before) != after:
                    raise Finding(
                        "swap-mapping",
                        f"{context}: entry {index} of {seq.name} went {before} -> {after}, but the pairs map "
                        f"{before} to {moved.get(before)} (absolute ids)",
                    )
        slots = [part.slot for part in parts]
        self.run(operations.swap_group(self.state, self.block_size, slots, lambda s, i: tables[s][i]), context)
        if self.config.caching:
            for slot in slots:
                self.run(operations.register_entries(self.state, self.block_size, slot), context)
        for part in parts:
            self._compare_table(part, tables[part.slot], context)
        return [(source + bases[0], target + bases[1]) for source, target in pairs]

    def executed(self, writes: Sequence[tuple[ExpectedSequence, int, int]]) -> None:
        """A step computed the tokens of each sequence from `start` up to `stop`.

        What a sequence reads but does not compute, because it took over the block of another, that other computes: in
        the same step at the latest, since a step writes before it reads.
        """
        behind = []
        for seq, start, stop in writes:
            for part in seq.parts:
                if self._num_done(part) < start:
                    behind.append((part, start, stop))
                else:
                    self._computed(part, stop)
        while behind:
            behind.sort(key=lambda write: not self._can_catch_up(write[0], write[1]))
            seq, start, stop = behind.pop(0)
            program = operations.catch_up(self.state, self.block_size, seq.slot, start - self._num_done(seq))
            self.run(program, f"run: sequence {seq.id}")
            self._computed(seq, stop)

    def _num_done(self, seq: ExpectedSequence) -> int:
        return self.state.done_full[seq.slot] * self.block_size + self.state.done_filled[seq.slot]

    def _can_catch_up(self, seq: ExpectedSequence, start: int) -> bool:
        state, size = self.state, self.block_size
        return all(
            state.num_written[state.table[seq.slot][index]] >= min(size, start - index * size)
            for index in range(state.done_full[seq.slot], self.blocks_for(start))
        )

    def _computed(self, seq: ExpectedSequence, stop: int) -> None:
        state, size = self.state, self.block_size
        self._widen(seq, "run")
        before = state.done_full[seq.slot]
        num_tokens = stop - self._num_done(seq)
        if num_tokens > 0:
            self.run(operations.compute_tokens(state, size, seq.slot, num_tokens), f"run: sequence {seq.id}")
            if self.config.caching and not seq.is_encoder:
                self.run(operations.mark_computed(state, size, seq.slot, before), f"run: sequence {seq.id}")

    # The subject's own account ----------------------------------------------------------------------------------

    def compare_pool(self, context: str, is_at_rest: Callable[[], bool]) -> None:
        """Refcounts, free lists and counters that the subject shows are those of the specification."""
        state, seen = self.state, self.observed
        if self.order is not None:
            self.order.judge(context)
        if len(seen.reserved) != self.num_reserved:
            self._set_aside(seen.reserved)
        if seen.refs is not None and seen.refs != state.refcount:
            self._compare_refcounts(seen.refs, context)
        if seen.free_ids is not None:
            self._compare_free_ids(seen.free_ids, context)
        for pool in (GPU, HOST):
            unused = state.count[pool][FREE] + state.count[pool][EVICTABLE]
            if seen.free[pool] != unused:
                is_early = seen.free[pool] > unused and any(map(self._is_left_in_flight, range(self.num_blocks)))
                raise Finding(
                    "in-flight-held" if is_early else "no-leak-at-rest" if is_at_rest() else "conservation",
                    f"{context}: {DEVICE[pool]}: {state.count[pool][USED]} blocks in tables, so {unused} are free; "
                    f"the subject counts {seen.free[pool]}",
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
                    f"{context}: refcount of block {block}: the specification says {one}, the subject {other}",
                )

    def _compare_free_ids(self, free_ids: list[int], context: str) -> None:
        status = self.state.status
        for block in free_ids:
            if not 0 <= block < self.num_blocks:
                raise Finding("lists-agree", f"{context}: the free list names block {block}, of {self.num_blocks}")
            if self._is_left_in_flight(block):
                raise Finding("in-flight-held", f"{context}: block {block} is free, and in use by what is in flight")
            if status[block] == USED:
                raise Finding("no-use-after-free", f"{context}: block {block} is free, and in a live table")
        if len(set(free_ids)) != len(free_ids):
            raise Finding("lists-agree", f"{context}: the free list names a block twice: {sorted(free_ids)}")
        if len(free_ids) != sum(self.observed.free):
            raise Finding(
                "lists-agree", f"{context}: {len(free_ids)} blocks in the free lists, {sum(self.observed.free)} counted"
            )


def _are_one_to_one(pairs: Sequence[Pair]) -> bool:
    """Whether every two pairs are; enough are those that stand side by side by their sources, and by their targets."""
    by_source, by_target = sorted(pairs), sorted(pairs, key=itemgetter(1))
    neighbours = chain(pairwise(by_source), pairwise(by_target))
    return all(mapping.are_one_to_one(*one, *other) for one, other in neighbours)
