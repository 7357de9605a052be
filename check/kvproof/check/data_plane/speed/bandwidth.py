"""Measure how fast blocks move and are compared, as ratios to plain copies made by the same machine in the same rounds.

The speed of a machine varies: other work, clocks, temperature, the place of memory. So each round times everything
once, including plain copies of as many bytes, and each speed is divided by the plain copy of its own round. The plain
copies use the memory of the pools, because the place of memory changes its speed. The rounds belong to three trials,
each in new memory. Noise is the variation of the ratio within a trial and between trials. Plain copies are timed twice
per round; the difference between the two shows what this method cannot measure.

In main memory each call moves 8 MiB: 64 blocks, as of a sequence of 1,024 tokens, from another place each time, in
another order each round. So the data of a call is not in the caches, as in an engine that runs a model between two
calls. A call is long enough to be measured, and mostly ends before the system gives the core to another process.

In main memory there are also large calls, which move more per plane than the allocator keeps for reuse. A user's
executor is timed in its own process, by the clock of that process, in memory that both processes share, and compared
with plain copies in that memory. Only executors that moved every byte right are timed (`trial`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from kvproof.check.data_plane.device import device_name
from kvproof.check.data_plane.executors.base import Executor
from kvproof.check.data_plane.executors.isolation import Crashed, ExecutorRaised, Hung, Isolation, NoRoom
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.run.harness import STEP_SECONDS_MAX
from kvproof.check.data_plane.speed.stopwatch import Stopwatch, noise, one_thread, spread
from kvproof.check.data_plane.speed.trial import READ, VERIFY, OnWork, Timed, TimedWork, Trial, mappings
from kvproof.check.data_plane.steps.moves import PoolId
from kvproof.check.hosts.time_limit import OutOfTime, require_time, search_ends_after
from kvproof.impl import free_bytes
from kvproof.reports.data_plane_result import Bandwidth, HostCost, Speed, SpeedGoal

NUM_TRIALS = 3
PAIRS_MIN = 8  # pairs of a call, if memory is short
HOST_COST_PAIRS, HOST_COST_BYTES, HOST_COST_ROUNDS = 128, 64, 15
LARGE, OWN_PROCESS = ", large", ", own process"
LARGE_PLANE_BYTES = 40 * 1024 * 1024  # moved in each plane by a large call: more than the C library keeps (32 MiB)
LARGE_EXECUTORS = ("engine", "index-copy")
LARGE_KINDS = ("swap out", "copy")
LARGE_SHARE = 0.25  # of the seconds


class NoSpeeds(Exception):
    """Nothing can be timed; the text gives the reason."""


@dataclass(frozen=True)
class BandwidthConfig:
    """The options of a measurement. The sizes are for main memory; `on_cuda` has those for a GPU.

    seconds: each trial runs at least five rounds, and then until its share of the time is over. num_pairs: of one call.
    num_places: the number of mappings of as many pairs that the rounds use in turn. large_bytes: moved in each plane by
    a large call; 0 for no large calls.
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
        """The same with 128 MiB per call and pools of 512 MiB, as only large copies reach the speed of a GPU."""
        return replace(self, num_layers=8, num_pairs=256, num_places=2, large_bytes=0)

    def fitting(self, skipped: list[str]) -> BandwidthConfig:
        """The same with fewer places, then with fewer blocks, if it needs more than half of the free memory.

        Appends what was reduced to `skipped`. Raises NoSpeeds if even the smallest size does not fit.
        """
        made = self
        while (lacking := made._lacking_bytes()) > 0:
            if made.num_places > 1:
                made = replace(made, num_places=made.num_places // 2)
            elif made.num_pairs > PAIRS_MIN:
                made = replace(made, num_pairs=made.num_pairs // 2)
            else:
                raise NoSpeeds(f"even calls of {made.num_pairs} blocks need {lacking / 2**20:,.0f} MiB more memory")
        if made.num_pairs < self.num_pairs:
            skipped.append(f"calls of {self.num_pairs} blocks: there is memory for {made.num_pairs}")
        return made

    def _lacking_bytes(self) -> int:
        """Bytes missing in half of the free memory for both pools, and for the compared memory of the GPU's size."""
        shape, is_one = self.geometry(), torch.device(self.device).type == "cpu"
        gpu, cpu = (shape.num_rows(pool) * shape.row_bytes for pool in (PoolId.GPU, PoolId.CPU))
        here, there = (cpu + 2 * gpu, 0) if is_one else (cpu, 2 * gpu)
        return max(2 * here - free_bytes("cpu"), 2 * there - free_bytes(self.device))

    def geometry(self, num_pairs: int = 0, num_layers: int = 0) -> Geometry:
        """Blocks of 16 tokens, 8 heads and head size 128, as in a model of 8e9 parameters; a latent row has 576."""
        heads, size = (1, 576) if self.layout is Layout.LATENT else (8, 128)
        num_blocks = 2 * (num_pairs or self.num_pairs * self.num_places)
        return Geometry(self.layout, self.dtype, 16, heads, size, num_layers or self.num_layers, num_blocks, num_blocks)

    def tiny_geometry(self) -> Geometry:
        """Blocks so small that a call costs much more than moving their bytes."""
        num_blocks = 2 * HOST_COST_PAIRS
        return Geometry(self.layout, "uint8", 1, 1, HOST_COST_BYTES, 1, num_blocks, num_blocks)

    def loads(self, skipped: list[str], stack: ExitStack) -> list[tuple[TimedWork, int, float]]:
        """Each load with its number of trials and its share of the seconds. Appends omitted loads to `skipped`.

        stack: closes the processes of the users' executors.
        """
        is_apart = torch.device(self.device).type == "cpu"  # a user's executor runs in its own process
        ours = tuple(one for one in self.executors if not (one.is_own and is_apart))
        own = [one for one in self.executors if one.is_own and is_apart]
        base = TimedWork(self.geometry(), ours, self.num_pairs, self.num_places, verifies=True)
        loads = [(base, NUM_TRIALS, 1.0)]
        if self.large_bytes and (large := self._large(ours, skipped)):
            loads = [(base, NUM_TRIALS, 1 - LARGE_SHARE), (large, 1, LARGE_SHARE)]
        for one in own:
            process = stack.enter_context(Isolation(one.name, STEP_SECONDS_MAX))
            load = replace(base, executors=(one,), label=OWN_PROCESS, isolation=process, verifies=False)
            loads.append((load, NUM_TRIALS, 1.0))
        total = sum(share for _, _, share in loads)
        return [(load, num_trials, share / total) for load, num_trials, share in loads]

    def _large(self, executors: tuple[Executor, ...], skipped: list[str]) -> TimedWork | None:
        """The load of large calls on one layer; None without an executor for it, or without enough memory."""
        chosen = tuple(one for one in executors if one.name in LARGE_EXECUTORS)
        num_pairs = max(1, self.large_bytes // self.geometry(1, 1).plane_bytes)
        geometry = self.geometry(num_pairs, 1)
        if chosen and 2 * (needed := geometry.num_bytes()) > (free := free_bytes(self.device)):
            skipped.append(
                f"large calls: pools of {needed >> 20:,} MiB need twice that, and {free >> 20:,} MiB are free"
            )
            return None
        return TimedWork(geometry, chosen, num_pairs, 1, LARGE_KINDS, LARGE) if chosen else None


def run_bandwidth(config: BandwidthConfig, on_progress: OnWork = lambda what, done, total: None) -> Bandwidth:
    """Check every move, then time the right ones, in several trials. Raises NoSpeeds if nothing can be timed.

    What is not timed before the time of the run (`calls_end_at`) is over is skipped.
    """
    device = torch.device(config.device)
    skipped: list[str] = []
    config = config.fitting(skipped)
    groups: list[list[Trial]] = []
    host_costs: list[HostCost] = []
    busy, done, total = 1.0, 0, 0

    def report(what: str) -> None:
        on_progress(what, done, total)

    with one_thread(), ExitStack() as stack:
        loads = config.loads(skipped, stack)
        total = sum(num_trials for _, num_trials, _ in loads)
        for load, num_trials, share in loads:
            stopwatch = Stopwatch(device)
            trials = [Trial(load, device, config.seed + number, number == 0) for number in range(num_trials)]
            try:
                with nullcontext() if load.isolation is None else search_ends_after(config.seconds):
                    for trial in trials:
                        seconds = config.seconds * share / num_trials
                        trial.run(stopwatch, seconds, report)
                        done += 1
                    if load.isolation is None:  # otherwise this process mostly waits for the other
                        busy = min(busy, stopwatch.busy)
                    if load.label != LARGE:
                        host_costs += _host_costs(config, load, stopwatch)
            except (ExecutorRaised, Hung, Crashed, NoRoom) as error:
                skipped.append(f"{load.executors[0].name}: failed while it was timed: {error}")
                continue
            except OutOfTime:
                names = ", ".join(one.name for one in load.executors)
                skipped.append(f"{names}{load.label}: the time was over before the timing ended")
                continue
            groups.append(trials)
        on_progress("timing", total, total)
    if not groups:
        raise NoSpeeds("; ".join(skipped))
    return _measured(config, device, groups, host_costs, busy, skipped)


def _measured(
    config: BandwidthConfig,
    device: torch.device,
    groups: list[list[Trial]],
    host_costs: list[HostCost],
    busy: float,
    skipped: list[str],
) -> Bandwidth:
    """What the trials measured, by load. busy: the share of the time in which this process ran."""
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


def _host_costs(config: BandwidthConfig, load: TimedWork, stopwatch: Stopwatch) -> list[HostCost]:
    """The time of one pair on the host, measured with blocks so small that their bytes do not matter."""
    tiny = replace(load, geometry=config.tiny_geometry())
    world, costs = tiny.world(stopwatch.device), []
    kinds = mappings(tiny.geometry, HOST_COST_PAIRS, 1, config.seed)
    for executor in load.executors:
        if executor.unsupported(tiny.geometry, stopwatch.device):
            continue
        move = tiny.prepared(executor, world)
        for name, (moves,) in kinds.items():
            work = partial(move, moves)
            require_time()
            work()
            laps = [stopwatch.host_seconds(work) for _ in range(HOST_COST_ROUNDS)]
            per_pair = spread(np.array(laps) * 1e6 / moves.num_pairs)
            costs.append(HostCost(executor.name, name + load.label, moves.num_pairs, per_pair))
    return costs


def _speeds(of_trials: list[list[Timed]], trials: list[Trial]) -> list[Speed]:
    """One speed for each thing that was timed in every trial."""
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
        traffic_bytes=first.num_bytes if first.mapping == VERIFY or first.name == READ else 2 * first.num_bytes,
        gb_per_second=spread(np.concatenate([part.speeds() for part in parts])),
        ratio=spread(np.concatenate(ratios)),
        noise=noise(ratios),
    )


ENGINE, GATHER = "engine", "index-copy"
MEMCMP_MIN, TORCH_MIN, KERNEL_MIN = 0.9, 0.5, 0.85
RUNS_MIN, SCATTERED_MIN, SCATTERED_BYTES_MIN = 0.7, 0.5, 32 * 1024
GATHER_TIMES, LARGE_CALL = 3.0, "large"


def goals(speeds: Bandwidth, plane_bytes: int) -> list[SpeedGoal]:
    """The wanted speeds of kvproof's own engine and comparison, in main memory on one core, or on a GPU.

    All are ratios: to plain copies of as many bytes in the same rounds, to a plain read, or of one executor to another.
    The slowest mapping of a kind decides. A missed goal is a line in every report; it changes no verdict, as no byte is
    wrong. plane_bytes: the contiguous bytes of one block and layer.
    """
    mine = [one for one in speeds.moves if one.name == ENGINE]
    runs, scattered = ([one for one in mine if f", {order}" in one.mapping] for order in ("in a row", "scattered"))
    # On a GPU every call is larger than what is called large in main memory.
    large = mine if speeds.device == "cuda" else [one for one in mine if LARGE_CALL in one.mapping]
    is_sized = plane_bytes >= SCATTERED_BYTES_MIN
    small = f"not measured: blocks of {plane_bytes / 1024:g} KiB; the goal is for 32 KiB and more"
    gather = {one.mapping: one for one in speeds.moves if one.name == GATHER}
    return [
        *(_comparing_on_cuda(speeds) if speeds.device == "cuda" else _comparing_in_memory(speeds)),
        _of_plain_copy("engine, blocks in a row", RUNS_MIN, runs),
        _of_plain_copy("engine, scattered blocks", SCATTERED_MIN, scattered)
        if is_sized
        else SpeedGoal("engine, scattered blocks", f"{SCATTERED_MIN:g} of a plain copy", small, None),
        _of_gather([(one, gather[one.mapping]) for one in large if one.mapping in gather]),
    ]


def _comparing_in_memory(speeds: Bandwidth) -> list[SpeedGoal]:
    return [
        _of_plain_copy("comparing, with memcmp", MEMCMP_MIN, _named(speeds.verification, "memcmp")),
        _of_plain_copy("comparing, with torch alone", TORCH_MIN, _named(speeds.verification, "torch")),
    ]


def _comparing_on_cuda(speeds: Bandwidth) -> list[SpeedGoal]:
    found = [(one.ratio.median, one) for one in _named(speeds.verification, "one Triton kernel")]
    return [_goal("comparing, with one kernel", f"{KERNEL_MIN:g} of a plain read", KERNEL_MIN, found)]


def _named(speeds: Iterable[Speed], name: str) -> list[Speed]:
    return [one for one in speeds if one.name == name]


def _of_plain_copy(name: str, wanted: float, speeds: list[Speed]) -> SpeedGoal:
    return _goal(name, f"{wanted:g} of a plain copy", wanted, [(one.ratio.median, one) for one in speeds])


def _of_gather(pairs: list[tuple[Speed, Speed]]) -> SpeedGoal:
    times = [(mine.ratio.median / its.ratio.median, mine) for mine, its in pairs]
    return _goal("engine, large calls", f"{GATHER_TIMES:g} times {GATHER}", GATHER_TIMES, times)


def _goal(name: str, wanted_text: str, wanted: float, found: list[tuple[float, Speed]]) -> SpeedGoal:
    if not found:
        return SpeedGoal(name, wanted_text, "not measured", None)
    least, slowest = min(found, key=lambda one: one[0])
    megabytes = slowest.payload_bytes / 2**20
    text = f"{least:.2f}, {slowest.mapping}, {megabytes:.3g} MiB a call"
    return SpeedGoal(name, wanted_text, text, least >= wanted)
