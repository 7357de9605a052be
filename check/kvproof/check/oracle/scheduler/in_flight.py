"""What the device has not finished: each pending access of a block is a flight of the specification.

A step uses the blocks of its sequences from the moment it is scheduled until it is complete; on a device that runs its
steps one after another, and starts none before the one before has ended, only until it is launched, since whatever is
put into a block later is written by a later step. While a flight uses a block, the block is neither free nor evictable,
whoever gave it up: that is a rule of the specification (`flight_rules`), and a subject that counts such a block as free
or gives it away has refuted `in-flight-held`.
"""

from collections.abc import Iterable

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.refinement import Explainer

STEPS_MAX = 3  # under way at once, the one being scheduled included


def num_flights_max(num_blocks: int) -> int:
    """Flights that can be under way: every step, and one transfer, may use every block."""
    return (STEPS_MAX + 1) * num_blocks


class Pending:
    """The flights, and which are not in use."""

    def __init__(self, explainer: Explainer, num_flights: int) -> None:
        self.explainer, self.idle = explainer, list(range(num_flights - 1, -1, -1))

    def launch(self, seqs: Iterable[ExpectedSequence], context: str) -> list[int]:
        """From now on, each block that these sequences hold is used by one more flight; returned are the flights."""
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
        """These accesses are over; the last one gives a block back that nobody refers to any more."""
        self.explainer.run((("land", (flight,)) for flight in flights), context)
        self.idle += flights
        flights.clear()
