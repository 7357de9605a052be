"""How fast this host is now, beside those on which goals in seconds were set.

The same work takes two to three times as long on one host as on another, and as long again while neighbours are busy.
A goal in seconds that was set elsewhere says nothing without that, so seconds are scaled by fixed work in plain Python.
"""

import statistics
import time

# Processor time of the work. On the host on which most goals were set it is estimated: a walk of kvproof does 23,900
# operations a second there, and 10,160 where the work takes 0.21 seconds.
SECONDS_OF_GOALS = 0.089
SECONDS_OF_SIGHTS = 0.21  # where first sights were measured
NUM_STEPS, ROUNDS = 500_000, 3


class Cell:
    """What the work reads and changes."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.rows = [[0] * 8 for _ in range(64)]

    def step(self, number: int) -> bool:
        """Change a row and a count, as a judge does in each operation."""
        row = self.rows[number % 64]
        row[number % 8] = number
        key = number % 97
        self.counts[key] = self.counts.get(key, 0) + 1
        return row[:4] == row[4:]


def seconds_of_work() -> float:
    """Processor seconds of the fixed work."""
    cell, began = Cell(), time.process_time()
    for number in range(NUM_STEPS):
        cell.step(number)
    return time.process_time() - began


def slowness(reference: float = SECONDS_OF_GOALS) -> float:
    """How many times as long this host takes as one where the work takes `reference` seconds: a median."""
    return statistics.median(seconds_of_work() for _ in range(ROUNDS)) / reference
