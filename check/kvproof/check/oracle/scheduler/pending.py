"""Accesses of blocks that are under way: steps, and transfers and copies, each a flight of the specification."""

from collections.abc import Iterable, Mapping, Sequence

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.firing import SpecRunner
from kvproof.spec.text import operations

STEPS_MAX = 3  # under way at once, the one being scheduled included
NUM_TRANSFERS_MAX = 12  # that use one block at once


def num_flights_max(num_blocks: int, num_transfers: int) -> int:
    """The most flights at a time: every step, and several transfers, may use every block."""
    return (STEPS_MAX + num_transfers) * num_blocks


class Pending:
    """Pending accesses of blocks: each is a flight of the specification. Here are the flights, and which are idle.

    A step uses the blocks of its sequences from when it is scheduled until it is complete. On a device that runs its
    steps one after another it uses them only until it is launched, since later content of a block is written by a later
    step. While a flight uses a block, the block is neither free nor evictable, even if its sequence released it: that
    is a rule of the specification (`flight_rules`). A subject that counts such a block as free, or gives it out,
    refutes `in-flight-held`.
    """

    def __init__(self, explainer: SpecRunner, num_flights: int) -> None:
        self.explainer, self.idle = explainer, list(range(num_flights - 1, -1, -1))

    def launch(
        self, seqs: Iterable[ExpectedSequence], context: str, starts: Mapping[int, int] | None = None
    ) -> list[int]:
        """Begin one flight for each block that these sequences hold, and return the flights.

        starts: by sequence, the first token that is computed; blocks that no token from there on reads are left out.
        """
        explainer = self.explainer
        state, null = explainer.state, explainer.machine.null
        entries: dict[int, tuple[int, int]] = {}
        for part in [part for seq in seqs for part in seq.parts]:
            slot = part.slot
            table, first = state.table[slot], 0
            if part.window and starts is not None and part.id in starts:
                first = operations.first_entry_read(explainer.block_size, part.at(starts[part.id]), part.window)
            for index in range(first, state.num_blocks[slot]):
                if table[index] != null:
                    entries.setdefault(table[index], (slot, index))
        flights = [self.idle.pop() for _ in entries]
        explainer.run((("launch", (f, *entry)) for f, entry in zip(flights, entries.values(), strict=True)), context)
        return flights

    def copy_out(self, blocks: Sequence[int], context: str) -> list[int]:
        """Begin one flight for each of these cached blocks, which need not be in a table, and return the flights."""
        flights = [self.idle.pop() for _ in blocks]
        self.explainer.run((("copy_out", pair) for pair in zip(flights, blocks, strict=True)), context)
        return flights

    def land(self, flights: list[int], context: str) -> None:
        """End these flights; a block that no table names is released with its last flight."""
        self.explainer.run((("land", (flight,)) for flight in flights), context)
        self.idle += flights
        flights.clear()
