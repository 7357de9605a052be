"""What is usual among measurements of one quantity, and which measurement is out of line.

The usual value is the median: measurements that are far off, if they are fewer than half, hardly move it. The spread is
the median distance from the median (MAD). For normally distributed noise, 1.4826 MAD is the standard deviation.
A measurement is out of line if it is farther from the median than three of these deviations, and farther than a tenth
of the median. The second bound is there because a few measurements may agree by chance.
Source: F. R. Hampel, The influence curve and its role in robust estimation, JASA 69 (1974).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

NEEDED = 3  # measurements; fewer say nothing about what is usual
DEVIATION_OF_MAD = 1.4826
DEVIATIONS = 3.0
FLOOR = 0.10  # of the median
RULE = (
    f"A measurement is out of line if it differs from the median by more than {DEVIATIONS:g} × {DEVIATION_OF_MAD} × "
    f"MAD (the median distance from the median) and by more than {FLOOR:.0%}; at least {NEEDED} measurements are "
    "needed."
)


@dataclass(frozen=True)
class Usual:
    """The median of `count` measurements, and the distance from it beyond which a measurement is out of line."""

    median: float
    band: float
    count: int

    def band_for(self, noise: float) -> float:
        """The distance for a measurement whose own relative uncertainty is `noise`."""
        return max(self.band, noise * self.median)

    def is_below(self, value: float, noise: float = 0.0) -> bool:
        """Whether a measurement is out of line, and less than usual."""
        return value < self.median - self.band_for(noise)

    def is_out(self, value: float, noise: float = 0.0) -> bool:
        """Whether a measurement is out of line."""
        return abs(value - self.median) > self.band_for(noise)


def usual(values: Sequence[float]) -> Usual | None:
    """What is usual among these measurements; None if there are fewer than `NEEDED`."""
    if len(values) < NEEDED:
        return None
    middle = median(values)
    mad = median(abs(value - middle) for value in values)
    return Usual(middle, max(DEVIATIONS * DEVIATION_OF_MAD * mad, FLOOR * abs(middle)), len(values))
