"""A reference worker on integers: it executes the lists that the manager emitted, in the order of an engine's worker.

A step executes the mapping (`kvproof.spec.text.mapping`), then the writes of the model. Blocks that were given out
without content are cleared before the model writes, so that the old content of an equal prompt cannot pass for computed
KV. Slots that are reserved beyond the known tokens are filled with junk, as a draft model would fill them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, permutations

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.protocol.manager import NULL_BLOCK, Pair
from kvproof.spec.text import mapping

EMPTY, JUNK = -1, -2
EVERY_ORDER_MAX = 4  # pairs of a list that do not commute: of so many every order is tried, of more some orders


class Worker:
    """The slots of both devices, and the lists of one step."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._empty = [EMPTY] * block_size
        self.slots = [self._empty] * num_blocks  # a block that was never written shares this row
        self.swap_in: list[Pair] = []
        self.swap_out: list[Pair] = []
        self.copies: list[Pair] = []
        self.fresh: list[int] = []
        self.writes: list[tuple[ExpectedSequence, int, int]] = []
        self.changed: set[int] = set()  # blocks, since `wrong_blocks` was asked last

    @property
    def is_pending(self) -> bool:
        """Whether a step was begun and not executed."""
        return bool(self.writes or self.copies or self.swap_in or self.swap_out)

    def copy(self, pairs: Iterable[Sequence[int]]) -> None:
        """One call asks for these copies. A copy that it lists twice, as for each layer, is one."""
        self.copies += dict.fromkeys((source, target) for source, target in pairs)

    @property
    def is_ordered(self) -> bool:
        """Whether pairs of a list do not commute: then only equal contents can make every order give the same bytes."""
        lists = self.copies, self.swap_in, self.swap_out
        return any(next(_other_orders(pairs), None) is not None for pairs in lists if len(pairs) > 1)

    def in_other_orders(self, lookahead: int) -> list[tuple[str, "Worker"]]:
        """Workers that have executed the same step with the pairs of one list in another order, each with that order.

        A worker runs the lists one after another, but may run the pairs of a list in any order, so only pairs that do
        not commute are rearranged. Empty if every two pairs of every list commute.
        """
        found: list[tuple[str, Worker]] = []
        if len(self.copies) > 1:
            found += [self._with(lookahead, "copies", order) for order in _other_orders(self.copies)]
        if len(self.swap_in) > 1:
            found += [self._with(lookahead, "swap_in", order) for order in _other_orders(self.swap_in)]
        if len(self.swap_out) > 1:
            found += [self._with(lookahead, "swap_out", order) for order in _other_orders(self.swap_out)]
        return found

    def disturbs_load(self, block: int) -> Pair | None:
        """A pair of this step that reads or writes a block that a load from elsewhere writes meanwhile, if any does."""
        pairs = (*self.swap_in, *self.swap_out, *self.copies)
        return next((pair for pair in pairs if not mapping.are_apart(*pair, mapping.ELSEWHERE, block)), None)

    def _with(self, lookahead: int, name: str, order: list[Pair]) -> tuple[str, "Worker"]:
        """A worker that has executed the step with the named list in that order, and the text of the order."""
        other = Worker(0, self.block_size)
        other.slots = self.slots[:]
        for block in self._written():  # the other rows are shared: nothing changes them
            other.slots[block] = self.slots[block][:]
        other.swap_in, other.swap_out, other.copies = self.swap_in[:], self.swap_out[:], self.copies[:]
        setattr(other, name, order[:])
        other.fresh, other.writes = self.fresh[:], self.writes[:]
        other.execute(lookahead)
        return f"{name} in the order {order}", other

    def _written(self) -> set[int]:
        """The blocks into which the writes of the step may go."""
        size, found = self.block_size, set[int]()
        for seq, start, _ in self.writes:
            for part in seq.parts:
                found.update(part.observed_table[part.layout.slots(start) // size :])
        found.discard(NULL_BLOCK)
        return found

    def execute(self, lookahead: int) -> None:
        """Execute the step."""
        slots, changed = self.slots, self.changed
        lists = {mapping.SWAP_IN: self.swap_in, mapping.SWAP_OUT: self.swap_out, mapping.COPY: self.copies}
        for name in mapping.WORKER_ORDER:
            queue = lists[name]
            for source, target in queue:
                slots[target] = slots[source][:]
                changed.add(target)
            queue.clear()
        for block in self.fresh:
            slots[block] = [EMPTY] * self.block_size
        self.fresh.clear()
        for seq, start, stop in self.writes:
            for part in seq.parts:
                slots_of = part.layout.slots
                self._write(part, slots_of(start), slots_of(stop), part.whole)
                if lookahead and not seq.is_encoder and not part.layout.is_state:
                    first = slots_of(max(stop, len(seq.tokens)))
                    last = min(slots_of(stop + lookahead), len(part.observed_table) * self.block_size)
                    self._write(part, first, last, None)
        self.writes.clear()

    def _write(self, seq: ExpectedSequence, start: int, stop: int, values: list[int] | None) -> None:
        """Write these slots of the table of a part; without values, junk."""
        size, table = self.block_size, seq.observed_table
        while start < stop:
            index, slot = divmod(start, size)
            count = min(size - slot, stop - start)
            block = table[index]
            if 0 <= block:
                if self.slots[block] is self._empty:
                    self.slots[block] = self._empty[:]
                self.slots[block][slot : slot + count] = values[start : start + count] if values else [JUNK] * count
                self.changed.add(block)
            start += count

    def wrong_blocks(self, memory: list[list[int]], num_written: Sequence[int], is_sparse: bool = False) -> list[int]:
        """The blocks whose slots differ from what the specification says was written there.

        is_sparse: look only at the blocks that changed since this was asked last. The specification writes, too, only
        where a step writes.
        """
        slots, changed = self.slots, self.changed
        if is_sparse:
            wrong = [b for b in sorted(changed) if slots[b][: num_written[b]] != memory[b][: num_written[b]]]
        else:
            wrong = [b for b, w in enumerate(num_written) if w and slots[b][:w] != memory[b][:w]]
        changed.clear()
        return wrong


def _other_orders(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Other orders of a list that may give other bytes. The reverse comes first."""
    num_named = Counter(block for pair in pairs for block in {*pair})
    sharing = [(i, pair) for i, pair in enumerate(pairs) if num_named[pair[0]] > 1 or num_named[pair[1]] > 1]
    disturbing = {
        place
        for (i, one), (j, other) in combinations(sharing, 2)  # pairs that have no block in common are apart
        if not mapping.commute(*one, *other)
        for place in (i, j)
    }
    if not disturbing:
        return
    yield pairs[::-1]
    some, others = [pairs[i] for i in sorted(disturbing)], [p for i, p in enumerate(pairs) if i not in disturbing]
    if len(some) <= EVERY_ORDER_MAX:
        orders = [*permutations(some)][1:-1]  # without the order itself, and its reverse
        yield from ([*order, *others] for order in orders)
        return
    for at, pair in enumerate(some):
        rest = [*some[:at], *some[at + 1 :], *others]
        yield [pair, *rest]
        yield [*rest, pair]
