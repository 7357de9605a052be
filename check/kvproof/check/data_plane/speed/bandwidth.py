"""How fast blocks move and are verified, as ratios to plain copies that the same machine makes in the same rounds.

A machine is never the same twice: other work, clocks, temperature, where memory happens to lie. So every round times
everything once, one after the other, plain copies of as many bytes among them, and each speed is divided by the plain
copy of its own round. Plain copies are made in the memory of the pools, for where memory lies changes its speed. The
rounds belong to three trials, each in new memory. Noise is what the ratio varies within a trial and from one to the
next; plain copies are timed twice a round, and how far the two differ tells what this method cannot see.

In main memory a round moves 8 MiB with each call, 64 blocks, as of a sequence of 1,024 tokens; from another place each
time, in another order each round. So what a call needs is not in the caches, as in an engine, which runs a model
between two calls. It is long enough to be measured, and over, most times, before the system gives the core to others.

In main memory there are large calls as well, of which a plane's share is more than the allocator keeps for reuse. An
executor of one's own is timed in its own process and by that process's clock, in memory that both share, beside plain
copies in that very memory. What was proven to be right is timed, nothing else (`trial`).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from kvproof.check.data_plane.device.environment import device_name
from kvproof.check.data_plane.executors.base import Executor
from kvproof.check.data_plane.executors.isolation import Crashed, Hung, Isolation, NoRoom, Raised
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.run.harness import STEP_SECONDS_MAX
from kvproof.check.data_plane.speed.speed_goals import goals
from kvproof.check.data_plane.speed.stopwatch import Stopwatch, noise, one_thread, spread
from kvproof.check.data_plane.speed.trial import Load, Progress, Trial
from kvproof.check.data_plane.speed.workload import VERIFY, Timed, mappings
from kvproof.check.data_plane.steps.moves import PoolId
from kvproof.impl import free_bytes
from kvproof.reports.data_plane_result import Bandwidth, HostCost, Speed

NUM_TRIALS = 3
PAIRS_MIN = 8  # of a call, where memory is short
HOST_COST_PAIRS, HOST_COST_BYTES, HOST_COST_ROUNDS = 128, 64, 15
LARGE, OWN_PROCESS = ", large", ", own process"
LARGE_PLANE_BYTES = 40 * 1024 * 1024  # moved in each plane by a large call: more than the C library keeps (32 MiB)
LARGE_EXECUTORS = ("engine", "index-copy")
LARGE_KINDS = ("swap out", "copy")
LARGE_SHARE = 0.25  # of the seconds


class NoSpeeds(Exception):
    """Nothing can be timed; the text says why."""


@dataclass(frozen=True)
class BandwidthConfig:
    """What is measured, and for how long: five rounds of each trial at least, then until the seconds are over.

    num_pairs: of one call. num_places: how many mappings of as many pairs the rounds go through in turn. Sizes are
    those for main memory; `on_cuda` has those for a GPU, whose copies must be large to show its speed.
    large_bytes: moved in each plane by a large call; 0 for none.
    """

    executors: tuple[Executor, ...]
    device: str = "cpu"
    layout: Layout = Layout.TWO_PLANES
    dtype: str = "bfloat16"
    seed: int = 0
    seconds: float = 5.0
    num_layers: int = 2
    num_pairs: int = 64
    num_places: int = 4
    large_bytes: int = LARGE_PLANE_BYTES

    def on_cuda(self) -> BandwidthConfig:
        """The same with 128 MiB for each call, of pools of 512 MiB."""
        return replace(self, num_layers=8, num_pairs=256, num_places=2, large_bytes=0)

    def fitting(self, skipped: list[str]) -> BandwidthConfig:
        """The same in fewer places, then with fewer blocks, if it takes more than half of what is free.

        What was made smaller goes to `skipped`. Raises NoSpeeds.
        """
        made = self
        while (lacking := made._lacking_bytes()) > 0:
            if made.num_places > 1:
                made = replace(made, num_places=made.num_places // 2)
            elif made.num_pairs > PAIRS_MIN:
                made = replace(made, num_pairs=made.num_pairs // 2)
            else:
                raise NoSpeeds(f"even calls of {made.num_pairs} blocks would need {lacking / 2**20:,.0f} MiB more")
        if made.num_pairs < self.num_pairs:
            skipped.append(f"calls of {self.num_pairs} blocks: there is room for {made.num_pairs}")
        return made

    def _lacking_bytes(self) -> int:
        """What half of the free memory falls short of: both pools, and what is compared, as large as the GPU's."""
        shape, is_one = self.geometry(), torch.device(self.device).type == "cpu"
        gpu, cpu = (shape.num_rows(pool) * shape.row_bytes for pool in (PoolId.GPU, PoolId.CPU))
        here, there = (cpu + 2 * gpu, 0) if is_one else (cpu, 2 * gpu)
        return max(2 * here - free_bytes("cpu"), 2 * there - free_bytes(self.device))

    def geometry(self, num_pairs: int = 0, num_layers: int = 0) -> Geometry:
        """Blocks of 16 tokens of 8 heads of 128, as of a model of 8 billion parameters; a latent row has 576."""
        heads, size = (1, 576) if self.layout is Layout.LATENT else (8, 128)
        num_blocks = 2 * (num_pairs or self.num_pairs * self.num_places)
        return Geometry(self.layout, self.dtype, 16, heads, size, num_layers or self.num_layers, num_blocks, num_blocks)

    def tiny_geometry(self) -> Geometry:
        """Blocks so small that moving them costs nothing but the call."""
        num_blocks = 2 * HOST_COST_PAIRS
        return Geometry(self.layout, "uint8", 1, 1, HOST_COST_BYTES, 1, num_blocks, num_blocks)

    def loads(self, skipped: list[str], stack: ExitStack) -> list[tuple[Load, int, float]]:
        """What is timed, in how many trials, for what share of the seconds; what is left out goes to `skipped`."""
        is_apart = torch.device(self.device).type == "cpu"  # one's own is in a process of its own
        ours = tuple(one for one in self.executors if not (one.is_own and is_apart))
        own = [one for one in self.executors if one.is_own and is_apart]
        base = Load(self.geometry(), ours, self.num_pairs, self.num_places, verifies=True)
        loads = [(base, NUM_TRIALS, 1.0)]
        if self.large_bytes and (large := self._large(ours, skipped)):
            loads = [(base, NUM_TRIALS, 1 - LARGE_SHARE), (large, 1, LARGE_SHARE)]
        for one in own:
            process = stack.enter_context(Isolation(one.name, STEP_SECONDS_MAX))
            load = replace(base, executors=(one,), label=OWN_PROCESS, isolation=process, verifies=False)
            loads.append((load, NUM_TRIALS, 1.0))
        total = sum(share for _, _, share in loads)
        return [(load, num_trials, share / total) for load, num_trials, share in loads]

    def _large(self, executors: tuple[Executor, ...], skipped: list[str]) -> Load | None:
        """Large calls on one layer, if there is an executor for them, and room."""
        chosen = tuple(one for one in executors if one.name in LARGE_EXECUTORS)
        num_pairs = max(1, self.large_bytes // self.geometry(1, 1).plane_bytes)
        geometry = self.geometry(num_pairs, 1)
        if chosen and 2 * (needed := geometry.num_bytes()) > (free := free_bytes(self.device)):
            skipped.append(f"large calls: pools of {needed >> 20:,} MiB are too large for {free >> 20:,} MiB free")
            return None
        return Load(geometry, chosen, num_pairs, 1, LARGE_KINDS, LARGE) if chosen else None


def run_bandwidth(config: BandwidthConfig, on_progress: Progress = lambda what, done, total: None) -> Bandwidth:
    """Prove, then time, three times over. Raises NoSpeeds if nothing can be timed."""
    device = torch.device(config.device)
    skipped: list[str] = []
    config = config.fitting(skipped)
    groups: list[list[Trial]] = []
    host_costs: list[HostCost] = []
    busy, done, total = 1.0, 0, 0

    def tell(what: str) -> None:
        on_progress(what, done, total)

    with one_thread(), ExitStack() as stack:
        loads = config.loads(skipped, stack)
        total = sum(num_trials for _, num_trials, _ in loads)
        for load, num_trials, share in loads:
            stopwatch = Stopwatch(device)
            trials = [Trial(load, device, config.seed + number) for number in range(num_trials)]
            try:
                for trial in trials:
                    seconds = config.seconds * share / num_trials
                    trial.run(stopwatch, seconds, tell)
                    done += 1
                if load.isolation is None:  # else this process mostly waits for another
                    busy = min(busy, stopwatch.busy)
                if load.label != LARGE:
                    host_costs += _host_costs(config, load, stopwatch)
            except (Raised, Hung, Crashed, NoRoom) as error:
                skipped.append(f"{load.executors[0].name}: while it was timed, {error}")
                continue
            groups.append(trials)
        on_progress("timing", total, total)
    if not groups:
        raise NoSpeeds("; ".join(skipped))
    geometry = config.geometry()
    everything = [trial for trials in groups for trial in trials]
    found = Bandwidth(
        device=device.type,
        device_name=device_name(device),
        layout=geometry.layout.value,
        dtype=geometry.dtype,
        block_bytes=geometry.block_bytes,
        num_rounds=sum(len(trial.plain[0].seconds) for trial in groups[0]),
        references=[one for group in groups for one in _speeds([s.plain for s in group], group)],
        moves=[one for group in groups for one in _speeds([s.moves for s in group], group)],
        verification=[one for group in groups for one in _speeds([s.verification for s in group], group)],
        host_costs=host_costs,
        busy=busy,
        drift=max(trial.drift() for trial in everything),
        skipped=list(dict.fromkeys([*skipped, *(reason for trial in everything for reason in trial.skipped)])),
    )
    found.goals = goals(found, geometry.plane_bytes)
    return found


def _host_costs(config: BandwidthConfig, load: Load, stopwatch: Stopwatch) -> list[HostCost]:
    """What a pair costs when its bytes are next to nothing."""
    tiny = replace(load, geometry=config.tiny_geometry())
    world, costs = tiny.world(stopwatch.device), []
    kinds = mappings(tiny.geometry, HOST_COST_PAIRS, 1, config.seed)
    for executor in load.executors:
        if executor.unsupported(tiny.geometry, stopwatch.device):
            continue
        move = tiny.prepared(executor, world)
        for name, (moves,) in kinds.items():
            work = partial(move, moves)
            work()
            laps = [stopwatch.lap(work).host_seconds for _ in range(HOST_COST_ROUNDS)]
            per_pair = spread(np.array(laps) * 1e6 / moves.num_pairs)
            costs.append(HostCost(executor.name, name + load.label, moves.num_pairs, per_pair))
    return costs


def _speeds(of_trials: list[list[Timed]], trials: list[Trial]) -> list[Speed]:
    """One speed for what was timed in every trial."""
    by_key = [{one.key: one for one in timed} for timed in of_trials]
    return [
        _speed([keyed[one.key] for keyed in by_key], trials)
        for one in of_trials[0]
        if all(one.key in keyed for keyed in by_key)
    ]


def _speed(parts: list[Timed], trials: list[Trial]) -> Speed:
    first = parts[0]
    ratios = []
    for part, trial in zip(parts, trials, strict=True):
        (reference,) = (plain for plain in trial.plain if plain.mapping == first.reference)
        ratios.append(part.speeds() / reference.speeds())
    return Speed(
        name=first.name,
        mapping=first.mapping,
        reference=first.reference,
        num_pairs=first.num_pairs,
        payload_bytes=first.num_bytes,
        traffic_bytes=first.num_bytes if first.mapping == VERIFY else 2 * first.num_bytes,
        gb_per_second=spread(np.concatenate([part.speeds() for part in parts])),
        ratio=spread(np.concatenate(ratios)),
        noise=noise(ratios),
    )
