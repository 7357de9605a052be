"""Pending accesses of blocks: each is a flight of the specification.

A step uses the blocks of its sequences from when it is scheduled until it is complete. On a device that runs its steps
one after another it uses them only until it is launched, since later content of a block is written by a later step.
While a flight uses a block, the block is neither free nor evictable, even if its sequence released it: that is a rule
of the specification (`flight_rules`). A subject that counts such a block as free, or gives it out, refutes
`in-flight-held`.
"""

from collections.abc import Iterable

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.refinement import Explainer

STEPS_MAX = 3  # under way at once, the one being scheduled included


def num_flights_max(num_blocks: int) -> int:
    """The most flights at a time: every step, and one transfer, may use every block."""
    return (STEPS_MAX + 1) * num_blocks


class Pending:
    """The flights, and which of them are idle."""

    def __init__(self, explainer: Explainer, num_flights: int) -> None:
        self.explainer, self.idle = explainer, list(range(num_flights - 1, -1, -1))

    def launch(self, seqs: Iterable[ExpectedSequence], context: str) -> list[int]:
        """Begin one flight for each block that these sequences hold, and return the flights."""
        explainer = self.explainer
        state, null = explainer.state, explainer.machine.null
        entries: dict[int, tuple[int, int]] = {}
        for slot in [part.slot for seq in seqs for part in seq.parts]:
            table = state.table[slot]
            for index in range(state.num_blocks[slot]):
                if table[index] != null:
                    entries.setdefault(table[index], (slot, index))
        flights = [self.idle.pop() for _ in entries]
        explainer.run((("launch", (f, *entry)) for f, entry in zip(flights, entries.values(), strict=True)), context)
        return flights

    def land(self, flights: list[int], context: str) -> None:
        """End these flights; a block that no table names is released with its last flight."""
        self.explainer.run((("land", (flight,)) for flight in flights), context)
        self.idle += flights
        flights.clear()
