"""The speeds of the runs of one subject, each beside those of earlier runs on the same host.

Two kinds of speed are kept. A search has operations per second of processor time; they are compared among complete runs
with the same command, effort, budget, judges and findings, because what a run searches and shortens decides its speed,
too. A data plane has the ratio of each executor and mapping to a plain copy; it is compared among complete runs that
measured the same: device, layout, element type and block size. At most the last `EARLIER_MAX` runs count, `RULE`
says what is out of line, and the noise of a ratio widens its band. If facts of the machine or releases have changed
since the run before, a slower speed names them: they may be the cause.

The usual value of a quantity is the median: measurements that are far off, if they are fewer than half, hardly move it.
The spread is the median distance from the median (MAD). For normally distributed noise, 1.4826 MAD is the standard
deviation. A measurement is out of line if it is farther from the median than three of these deviations, and farther
than a tenth of the median. The second bound is there because a few measurements may agree by chance. Source: F. R.
Hampel, The influence curve and its role in robust estimation, JASA 69 (1974).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from kvproof.reports.device_baseline import FLOOR
from kvproof.reports.recorded_run import RecordedRun

NEEDED = 3  # measurements; fewer say nothing about what is usual
DEVIATION_OF_MAD = 1.4826
DEVIATIONS = 3.0
RULE = (
    f"A measurement is out of line if it differs from the median by more than {DEVIATIONS:g} × {DEVIATION_OF_MAD} × "
    f"MAD (the median distance from the median) and by more than {FLOOR:.0%}; at least {NEEDED} measurements are "
    "needed."
)

EARLIER_MAX = 20  # runs that a speed is compared with
OPERATIONS = "operations per processor second"
CAUSES = ("GPU", "driver", "PCIe link", "kernel", "processor", "CUDA of torch", "torch", "triton", "vllm", "sgl_kernel")
HOW_DECIDED = (
    f"The speed of a run is its {OPERATIONS}; of a data plane, the ratio of each move to a plain copy. It is compared "
    f"with at most {EARLIER_MAX} earlier complete runs of the same subject, command, effort, judges and findings, or "
    f"of the same device, layout, element type and block size, on the same host. {RULE}"
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


@dataclass
class RunSpeed:
    """A speed of a run, and what was usual before; None if not known.

    what: the quantity. noise: relative uncertainty of the value. changed: facts of the machine that differ from those
    of the run before, as text.
    """

    run: RecordedRun
    value: float
    before: Usual | None
    what: str = OPERATIONS
    noise: float = 0.0
    changed: str = ""

    @property
    def is_slow(self) -> bool:
        return self.before is not None and self.before.is_below(self.value, self.noise)

    @property
    def sentence(self) -> str:
        """How the speed differs from what was usual before."""
        shown = f"{_text(self.value)} {self.what}" if self.what == OPERATIONS else f"{self.what}: {_text(self.value)}"
        if self.before is None:
            return f"{shown}; too few earlier runs to compare with"
        change, band = self.value / self.before.median - 1, self.before.band_for(self.noise) / self.before.median
        return (
            f"{shown}: {change:+.1%} against the median {_text(self.before.median)} of {self.before.count} earlier "
            f"runs on {self.run.host}; noise is ±{band:.1%}{self.changed}"
        )


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3f}"


def search_speeds(runs: Sequence[RecordedRun]) -> dict[str, RunSpeed]:
    """The operations per second of each complete run, by its id. runs: of one subject, oldest first."""
    speeds: dict[str, RunSpeed] = {}
    series: dict[tuple[object, ...], list[float]] = {}
    for run in runs:
        value = run.operations_per_second
        if value is not None and run.is_complete:
            judges = frozenset(one.judge for one in run.work)
            key = (run.command, run.effort, run.budget_seconds, run.host, judges, run.identities)
            earlier = series.setdefault(key, [])
            speeds[run.id] = RunSpeed(run, value, usual(earlier[-EARLIER_MAX:]))
            earlier.append(value)
    return speeds


def move_speeds(runs: Sequence[RecordedRun]) -> list[RunSpeed]:
    """The ratio of each move of each complete run of a data plane. runs: of one subject, oldest first."""
    speeds: list[RunSpeed] = []
    series: dict[tuple[str, ...], list[float]] = {}
    last: dict[str, RecordedRun] = {}
    for run in runs:
        if not (run.speeds and run.is_complete):
            continue
        changed = _changed(last.get(run.host), run)
        last[run.host] = run
        for one in run.speeds:
            if not one.measured:
                continue  # an older kvproof did not record what was measured
            earlier = series.setdefault((run.host, one.measured, one.name, one.mapping), [])
            what = f"{one.name}, {one.mapping}, ratio"
            speeds.append(RunSpeed(run, one.ratio, usual(earlier[-EARLIER_MAX:]), what, one.noise, changed))
            earlier.append(one.ratio)
    return speeds


def _changed(before: RecordedRun | None, run: RecordedRun) -> str:
    """The facts that may be the cause of another speed, as the end of a sentence; empty if none has changed."""
    if before is None:
        return ""
    absent = "none"
    pairs = [(name, before.facts.get(name, absent), run.facts.get(name, absent)) for name in CAUSES]
    texts = [f"{name} {old} before, {new} now" for name, old, new in pairs if old != new]
    return f"; since the run before: {', '.join(texts)}" if texts else ""
