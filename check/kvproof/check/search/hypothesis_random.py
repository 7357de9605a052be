"""A generator of random numbers whose numbers Hypothesis chooses, and can make smaller.

What draws from a `random.Random` (configurations, operations, prompts) can so be driven by Hypothesis without being
written again.
"""

import functools
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import strategies as st

NUM_FRACTIONS = 64  # different random numbers between 0 and 1
BITS = 16
Draw = Callable[[st.SearchStrategy[Any]], Any]


@functools.cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


class Choices(Random):
    """A generator of random numbers that asks Hypothesis, through the current `draw`."""

    def __init__(self) -> None:
        super().__init__(0)
        self.draw: Draw = _no_draw
        self.shrinks_to_one = False  # a flag that is on below some fraction then shrinks to off

    def _below(self, stop: int) -> int:
        return int(self.draw(_integers(0, stop - 1))) if stop > 1 else 0

    def random(self) -> float:
        """A number in [0, 1), of few different ones."""
        number = self._below(NUM_FRACTIONS)
        return (NUM_FRACTIONS - 1 - number if self.shrinks_to_one else number) / NUM_FRACTIONS

    def getrandbits(self, k: int) -> int:
        """An integer of at most k bits."""
        return self._below(1 << min(k, BITS))

    def randint(self, a: int, b: int) -> int:
        """An integer from a to b."""
        return a + self._below(b - a + 1)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """An element of a range."""
        choices = range(start) if stop is None else range(start, stop, step)
        return choices[self._below(len(choices))]

    def choice(self, seq: Any) -> Any:
        """An element of a sequence."""
        return seq[self._below(len(seq))]

    def choices(self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
        """Elements of a sequence; Hypothesis decides how often each kind comes."""
        return [self.choice(population) for _ in range(k)]


def _no_draw(strategy: st.SearchStrategy[Any]) -> Any:
    raise AssertionError(f"{strategy} was drawn outside of a rule")
