"""A reference worker on integers: it executes the lists that the manager emitted, in the order of an engine's worker.

A step executes the mapping (`kvproof.spec.text.mapping`), then the writes of the model. Blocks that were given out
without content are cleared before the model writes, so that the old content of an equal prompt cannot pass for computed
KV. Slots that are reserved beyond the known tokens are filled with junk, as a draft model would fill them.
"""

from collections.abc import Iterable
from itertools import combinations

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.protocol.manager import Pair
from kvproof.spec.text import mapping

EMPTY, JUNK = -1, -2


class Worker:
    """The slots of both devices, and the lists of one step."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.slots = [[EMPTY] * block_size for _ in range(num_blocks)]
        self.swap_in: list[Pair] = []
        self.swap_out: list[Pair] = []
        self.copies: list[Pair] = []
        self.fresh: list[int] = []
        self.writes: list[tuple[ExpectedSequence, int, int]] = []

    @property
    def is_pending(self) -> bool:
        """Whether a step was begun and not executed."""
        return bool(self.writes or self.copies or self.swap_in or self.swap_out)

    def order_may_matter(self) -> bool:
        """Whether two copies of this step give other bytes in the other order."""
        return not all(mapping.commute(*one, *other) for one, other in combinations(self.copies, 2))

    def in_other_order(self, lookahead: int) -> "Worker":
        """A worker that has executed the same step with its copies in reverse order."""
        other = Worker(0, self.block_size)
        other.slots = [row[:] for row in self.slots]
        other.swap_in, other.swap_out, other.copies = self.swap_in[:], self.swap_out[:], self.copies[::-1]
        other.fresh, other.writes = self.fresh[:], self.writes[:]
        other.execute(lookahead)
        return other

    def execute(self, lookahead: int) -> None:
        """Execute the step."""
        slots = self.slots
        lists = {mapping.SWAP_IN: self.swap_in, mapping.SWAP_OUT: self.swap_out, mapping.COPY: self.copies}
        for name in mapping.WORKER_ORDER:
            queue = lists[name]
            for source, target in queue:
                slots[target] = slots[source][:]
            queue.clear()
        for block in self.fresh:
            slots[block] = [EMPTY] * self.block_size
        self.fresh.clear()
        for seq, start, stop in self.writes:
            for part in seq.parts:
                self._write(part, start, stop, part.identities)
                if lookahead and not seq.is_encoder:
                    first = max(stop, len(seq.tokens))
                    last = min(stop + lookahead, len(part.observed_table) * self.block_size)
                    self._write(part, first, last, None)
        self.writes.clear()

    def _write(self, seq: ExpectedSequence, start: int, stop: int, values: list[int] | None) -> None:
        size, table = self.block_size, seq.observed_table
        while start < stop:
            index, slot = divmod(start, size)
            count = min(size - slot, stop - start)
            block = table[index]
            if 0 <= block:
                self.slots[block][slot : slot + count] = values[start : start + count] if values else [JUNK] * count
            start += count

    def wrong_blocks(self, memory: list[list[int]], num_written: Iterable[int]) -> list[int]:
        """The blocks whose slots differ from what the specification says was written there."""
        slots = self.slots
        return [b for b, w in enumerate(num_written) if w and slots[b][:w] != memory[b][:w]]
