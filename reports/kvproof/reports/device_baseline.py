"""Speeds against those of an earlier run: worse is what is slower by more than noise.

Compared are ratios to plain copies, which each run made of its own machine, not speeds. The band of noise comes from
both runs: what their ratios varied, and how far two timings of one plain copy differed. It is never below a floor.
"""

import math
from pathlib import Path

from kvproof.reports.data_plane_result import Bandwidth, Comparison, Speed
from kvproof.reports.document import DocumentError, read
from kvproof.reports.result import Result

# Main memory is shared with whatever else runs; a GPU's is not.
FLOORS = {"cpu": 0.10, "cuda": 0.05}
SAME = ("device", "device_name", "layout", "dtype", "block_bytes")


def read_baseline(path: Path) -> Bandwidth:
    """The speeds of an earlier `kvproof device --json`. Raises DocumentError."""
    result = read(path, Result)
    if result.data_plane is None or result.data_plane.bandwidth is None:
        raise DocumentError(f"{path} holds no speeds; write one with `kvproof device --json {path.name}`")
    return result.data_plane.bandwidth


def difference(now: Bandwidth, before: Bandwidth) -> str:
    """Why the two cannot be compared, or nothing."""
    for name in SAME:
        mine, its = getattr(now, name), getattr(before, name)
        if mine != its:
            return f"its {name.replace('_', ' ')} is {its}, here it is {mine}"
    return ""


def compared(now: Bandwidth, before: Bandwidth) -> list[Comparison]:
    """What both runs timed, with calls of as many bytes. Raises ValueError for runs that cannot be compared."""
    if reason := difference(now, before):
        raise ValueError(reason)
    earlier = {_key(speed): speed for speed in (*before.moves, *before.verification)}
    return [
        _comparison(speed, earlier[_key(speed)], now, before)
        for speed in (*now.moves, *now.verification)
        if _key(speed) in earlier
    ]


def not_compared(now: Bandwidth, before: Bandwidth) -> list[str]:
    """What the baseline timed and this run did not."""
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
