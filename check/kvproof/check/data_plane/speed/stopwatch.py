"""Time of one piece of work: on the host by its clock, on CUDA by events in the stream.

On CUDA a spin kernel holds the stream back until everything is queued, or for a tenth of a second at most, so that the
time between the events is that of the device and not of the queueing; what queueing costs the host is measured apart.

Work that another process does is timed there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.reports.data_plane_result import Spread

SPIN_SECONDS_MIN, SPIN_SECONDS_MAX = 0.001, 0.1
CYCLES_PER_SECOND = 2e9  # about the clock of a current GPU
_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_MEDIAN_ERROR = math.sqrt(math.pi / 2)  # standard error of a median in those of a mean

Work = Callable[[], object]


class TakenThere(float):
    """What work returns that another process has done: the seconds that it took there."""


class Lap(NamedTuple):
    """Seconds that the bytes took, and seconds until the call had returned."""

    seconds: float
    host_seconds: float


class Stopwatch:
    """Times work that goes to the current stream of a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._began, self._cpu_began = time.perf_counter(), time.thread_time()

    def lap(self, work: Work, queueing_seconds: float = 0.0) -> Lap:
        """Run it once. queueing_seconds: how long the call took before, when nothing held the stream back."""
        if self.device.type == "cuda":
            return self._cuda_lap(work, queueing_seconds)
        began = time.perf_counter()
        done = work()
        seconds = done if isinstance(done, TakenThere) else time.perf_counter() - began
        return Lap(seconds, seconds)

    def _cuda_lap(self, work: Work, queueing_seconds: float) -> Lap:
        cuda: Any = torch.cuda  # its events are not typed
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize(self.device)
        seconds = min(max(2 * queueing_seconds, SPIN_SECONDS_MIN), SPIN_SECONDS_MAX)
        cuda._sleep(int(seconds * CYCLES_PER_SECOND))  # no public call spins
        start.record()
        began = time.perf_counter()
        work()
        host_seconds = time.perf_counter() - began
        end.record()
        end.synchronize()
        return Lap(start.elapsed_time(end) / 1000, host_seconds)

    @property
    def busy(self) -> float:
        """The share of the time since it was made in which this thread had its core."""
        return (time.thread_time() - self._cpu_began) / max(time.perf_counter() - self._began, 1e-9)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread within, and as many as before after."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def spread(values: NDArray[np.float64]) -> Spread:
    """Median, 5th and 95th percentile."""
    low, middle, high = np.percentile(values, [5, 50, 95])
    return Spread(float(middle), float(low), float(high))


def noise(trials: Sequence[NDArray[np.float64]]) -> float:
    """How far the median of all may be off by chance, relative to it.

    The greater of two: three standard errors of the median, from the median deviation, which outliers do not move; and
    the distance between the least and the greatest median of a trial.
    """
    values = np.concatenate(list(trials))
    middle = float(np.median(values))
    sigma = _MAD_TO_SIGMA * float(np.median(np.abs(values - middle)))
    medians = [float(np.median(part)) for part in trials]
    return max(3 * _MEDIAN_ERROR * sigma / math.sqrt(len(values)), max(medians) - min(medians)) / middle
