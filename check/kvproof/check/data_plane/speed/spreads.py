"""Medians, percentiles, and how far chance moves a median."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvproof.reports.data_plane_result import Spread

_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_MEDIAN_ERROR = math.sqrt(math.pi / 2)  # standard error of a median in those of a mean


def spread(values: NDArray[np.float64]) -> Spread:
    """Median, 5th and 95th percentile."""
    low, middle, high = np.percentile(values, [5, 50, 95])
    return Spread(float(middle), float(low), float(high))


def noise(sittings: Sequence[NDArray[np.float64]]) -> float:
    """How far the median of all may be off by chance, relative to it.

    The greater of two: three standard errors of the median, from the median deviation, which outliers do not move; and
    the distance between the least and the greatest median of a sitting.
    """
    values = np.concatenate(list(sittings))
    middle = float(np.median(values))
    sigma = _MAD_TO_SIGMA * float(np.median(np.abs(values - middle)))
    medians = [float(np.median(part)) for part in sittings]
    return max(3 * _MEDIAN_ERROR * sigma / math.sqrt(len(values)), max(medians) - min(medians)) / middle
