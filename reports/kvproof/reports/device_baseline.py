"""Compare speeds with those of an earlier run: a speed is worse if it is slower by more than noise.

The ratios to plain copies are compared, not the speeds; each run timed plain copies on its own machine. The band of
noise combines the variation of the ratios in both runs and the difference between two timings of the same plain copy.
It is never below a tenth: two hosts with the same card, driver and code differ by half of that and more.

A plain copy of a GPU hardly needs the host, and an executor that starts a call for each block needs little else. So on
a host that is slower or busy, such an executor is slower than before with the same card, driver and code. The cost of a
pair on the host shows it: if it has changed for every executor, and by more than `HOST_CHANGE` in the median, the host
is the likely cause.
"""

import math
from collections.abc import Collection
from pathlib import Path
from statistics import median

from kvproof.reports.data_plane_result import Bandwidth, Comparison, Speed
from kvproof.reports.document import DocumentError, read
from kvproof.reports.result import Result

FLOOR = 0.10  # a change of a speed by less is never reported
HOST_CHANGE = 1.25  # of the cost of a pair on the host, in either direction
EXECUTORS_MIN = 2  # one alone may have changed by itself
SAME = ("device", "device_name", "layout", "dtype", "block_bytes")


def read_baseline(path: Path) -> Bandwidth:
    """The speeds of an earlier `kvproof device --json`. Raises DocumentError."""
    result = read(path, Result)
    if result.data_plane is None or result.data_plane.bandwidth is None:
        raise DocumentError(f"{path} holds no speeds; write one with `kvproof device --json {path.name}`")
    return result.data_plane.bandwidth


def difference(now: Bandwidth, before: Bandwidth) -> str:
    """Why the two cannot be compared; empty if they can."""
    for name in SAME:
        mine, its = getattr(now, name), getattr(before, name)
        if mine != its:
            return f"its {name.replace('_', ' ')} is {its}, but this run has {mine}"
    return ""


def compared(now: Bandwidth, before: Bandwidth) -> list[Comparison]:
    """Compare every speed that both runs timed with the same number of bytes per call.

    Raises ValueError if the runs cannot be compared.
    """
    if reason := difference(now, before):
        raise ValueError(reason)
    earlier = {_key(speed): speed for speed in (*before.moves, *before.verification)}
    drifts = now.drift, before.drift
    return [
        _comparison(speed, earlier[_key(speed)], drifts)
        for speed in (*now.moves, *now.verification)
        if _key(speed) in earlier
    ]


def _missing(now: Bandwidth, before: Bandwidth) -> list[Speed]:
    """The speeds that the baseline has and this run does not."""
    here = {_key(speed) for speed in (*now.moves, *now.verification)}
    return [speed for speed in (*before.moves, *before.verification) if _key(speed) not in here]


def not_compared(now: Bandwidth, before: Bandwidth) -> list[str]:
    """The speeds that the baseline has and this run does not, as `executor, mapping`."""
    return [f"{speed.name}, {speed.mapping}" for speed in _missing(now, before)]


def untimed(now: Bandwidth | None, before: Bandwidth, executors: Collection[str]) -> dict[str, list[str]]:
    """The mappings that the baseline has timed and a run with these executors has not, by the name of the speed.

    now: the speeds of the run, if it measured some. An executor that the run was not asked for is left out.
    """
    speeds, left_out = [*before.moves, *before.verification], {speed.name for speed in before.moves} - set(executors)
    mappings: dict[str, list[str]] = {speed.name: [] for speed in speeds if speed.name not in left_out}
    for speed in speeds if now is None or difference(now, before) else _missing(now, before):
        if speed.name in mappings:
            mappings[speed.name].append(speed.mapping)
    return mappings


def host_change(now: Bandwidth, before: Bandwidth) -> str:
    """A sentence if the host itself is slower or faster than in the baseline; empty if not, or not known."""
    earlier = {(one.executor, one.mapping, one.num_pairs): one for one in before.host_costs}
    changes, executors = [], set()
    for one in now.host_costs:
        was = earlier.get((one.executor, one.mapping, one.num_pairs))
        if was is not None and was.microseconds_per_pair.median > 0:
            changes.append(one.microseconds_per_pair.median / was.microseconds_per_pair.median)
            executors.add(one.executor)
    if len(executors) < EXECUTORS_MIN:
        return ""
    usual = median(changes)
    is_slower = usual > HOST_CHANGE and min(changes) > 1
    if not is_slower and not (usual < 1 / HOST_CHANGE and max(changes) < 1):
        return ""
    how = "slower or busier" if is_slower else "faster or less busy"
    return (
        f"The host is {how} than in the baseline: a pair costs it {usual:.2f} times as much (the median of "
        f"{len(changes)} costs), so the speeds that depend on it have changed too."
    )


def _key(speed: Speed) -> tuple[str, str, int]:
    return speed.name, speed.mapping, speed.payload_bytes


def _comparison(now: Speed, before: Speed, drifts: tuple[float, float]) -> Comparison:
    change = now.ratio.median / before.ratio.median - 1
    band = max(FLOOR, math.hypot(now.noise, before.noise, *drifts))
    return Comparison(now.name, now.mapping, before.ratio.median, now.ratio.median, change, band, change < -band)
