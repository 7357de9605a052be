"""How fast this host is now, beside the one on which goals in processor seconds were measured.

The same work takes two to three times as long on one host as on another, and as long again while neighbours are busy.
A goal in seconds that was measured elsewhere says nothing without that, so it is scaled by fixed work in plain Python.
"""

import statistics
import time

REFERENCE_SECONDS = 0.21  # processor time of the work on the host of the goals
NUM_STEPS, ROUNDS = 500_000, 5


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


def slowness() -> float:
    """How many times as long this host takes as the one of the goals: the median of several measurements."""
    return statistics.median(seconds_of_work() for _ in range(ROUNDS)) / REFERENCE_SECONDS
