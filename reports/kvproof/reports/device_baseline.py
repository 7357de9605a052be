"""Compare speeds with those of an earlier run: a speed is worse if it is slower by more than noise.

The ratios to plain copies are compared, not the speeds; each run timed plain copies on its own machine. The band of
noise combines the variation of the ratios in both runs and the difference between two timings of the same plain copy.
It is never below a floor.
"""

import math
from pathlib import Path

from kvproof.reports.data_plane_result import Bandwidth, Comparison, Speed
from kvproof.reports.document import DocumentError, read
from kvproof.reports.result import Result

# Other processes use main memory too; the memory of a GPU they mostly do not.
FLOORS = {"cpu": 0.10, "cuda": 0.05}
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
    return [
        _comparison(speed, earlier[_key(speed)], now, before)
        for speed in (*now.moves, *now.verification)
        if _key(speed) in earlier
    ]


def not_compared(now: Bandwidth, before: Bandwidth) -> list[str]:
    """The speeds that the baseline has and this run does not, as `executor, mapping`."""
    here = {_key(speed) for speed in (*now.moves, *now.verification)}
    earlier = (*before.moves, *before.verification)
    return [f"{speed.name}, {speed.mapping}" for speed in earlier if _key(speed) not in here]


def _key(speed: Speed) -> tuple[str, str, int]:
    return speed.name, speed.mapping, speed.payload_bytes


def _comparison(now: Speed, before: Speed, run: Bandwidth, baseline: Bandwidth) -> Comparison:
    change = now.ratio.median / before.ratio.median - 1
    chance = math.hypot(now.noise, before.noise, run.drift, baseline.drift)
    band = max(FLOORS.get(run.device, max(FLOORS.values())), chance)
    return Comparison(now.name, now.mapping, before.ratio.median, now.ratio.median, change, band, change < -band)
