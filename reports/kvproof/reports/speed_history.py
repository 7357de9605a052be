"""The speeds of the runs of one subject, each beside those of earlier runs on the same host.

Two kinds of speed are kept. A search has operations per second of processor time; they are compared among complete runs
with the same command, effort, budget, judges and findings, because what a run searches and shortens decides its speed,
too. A data plane has the ratio of each executor and mapping to a plain copy; it is compared among complete runs that
measured the same: device, layout, element type and block size. At most the last `EARLIER_MAX` runs count, `usual.RULE`
says what is out of line, and the noise of a ratio widens its band. If facts of the machine or releases have changed
since the run before, a slower speed names them: they may be the cause.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvproof.reports.recorded_run import RecordedRun
from kvproof.reports.usual import RULE, Usual, usual

EARLIER_MAX = 20  # runs that a speed is compared with
OPERATIONS = "operations per processor second"
CAUSES = ("GPU", "driver", "PCIe link", "kernel", "processor", "CUDA of torch", "torch", "triton", "vllm", "sgl_kernel")
HOW_DECIDED = (
    f"The speed of a run is its {OPERATIONS}; of a data plane, the ratio of each move to a plain copy. It is compared "
    f"with at most {EARLIER_MAX} earlier complete runs of the same subject, command, effort, judges and findings, or "
    f"of the same device, layout, element type and block size, on the same host. {RULE}"
)


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
