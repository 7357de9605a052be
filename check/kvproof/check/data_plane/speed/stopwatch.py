"""Time work, and summarise the times.

On the host the clock of the host is used, on CUDA events in the stream. On CUDA a spin kernel blocks the stream until
everything is queued, for at most a tenth of a second, so that the events measure the device and not the queueing. The
time of a call on the host is measured without the spin kernel, because many calls wait for the stream. Work in another
process is timed there.

All tensor work is timed on one thread.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.reports.data_plane_result import Spread

SPIN_SECONDS_MIN, SPIN_SECONDS_MAX = 0.001, 0.1
CYCLES_PER_SECOND = 2e9  # roughly the clock of a current GPU
_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_MEDIAN_ERROR = math.sqrt(math.pi / 2)  # standard error of a median in those of a mean

Work = Callable[[], object]


class TakenThere(float):
    """The result of work in another process: the seconds that it took there."""


class Stopwatch:
    """Times work on the current stream of a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._began, self._cpu_began = time.perf_counter(), time.thread_time()

    def lap(self, work: Work, queueing_seconds: float = 0.0) -> float:
        """Run the work once. Returns the seconds until the bytes had moved. queueing_seconds: `host_seconds` of it."""
        return self._cuda_lap(work, queueing_seconds) if self.device.type == "cuda" else self.host_seconds(work)

    def host_seconds(self, work: Work) -> float:
        """Run the work once, on an idle device. Returns the seconds until the call had returned."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        began = time.perf_counter()
        done = work()
        return done if isinstance(done, TakenThere) else time.perf_counter() - began

    def _cuda_lap(self, work: Work, queueing_seconds: float) -> float:
        cuda: Any = torch.cuda  # its events are not typed
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize(self.device)
        seconds = min(max(2 * queueing_seconds, SPIN_SECONDS_MIN), SPIN_SECONDS_MAX)
        cuda._sleep(int(seconds * CYCLES_PER_SECOND))  # no public call spins
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000

    @property
    def busy(self) -> float:
        """The share of the time since the stopwatch was created in which this thread had its core."""
        return (time.thread_time() - self._cpu_began) / max(time.perf_counter() - self._began, 1e-9)


@contextmanager
def one_thread() -> Iterator[None]:
    """Make torch use one thread within the block: on a busy machine, barriers cost more than the shared work saves."""
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
    """The relative error of the median of all values that chance may cause. trials: the values of each trial.

    It is the greater of two numbers: three standard errors of the median, estimated from the median absolute deviation,
    which is robust against outliers; and the difference between the greatest and the least median of a trial.
    """
    values = np.concatenate(list(trials))
    middle = float(np.median(values))
    sigma = _MAD_TO_SIGMA * float(np.median(np.abs(values - middle)))
    medians = [float(np.median(part)) for part in trials]
    return max(3 * _MEDIAN_ERROR * sigma / math.sqrt(len(values)), max(medians) - min(medians)) / middle
