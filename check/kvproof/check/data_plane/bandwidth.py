"""How fast blocks move and are verified, as ratios to plain copies that the same machine makes in the same rounds.

A machine is never the same twice: other work, clocks, temperature, where memory happens to lie. So every round times
everything once, one after the other, plain copies of as many bytes among them, and each speed is divided by the plain
copy of its own round. Plain copies are made in the memory of the pools, for where memory lies changes its speed. The
rounds belong to three sittings, each in new memory. Noise is what the ratio varies within a sitting and from one to the
next; plain copies are timed twice a round, and how far the two differ tells what this method cannot see.

In main memory a round moves a few MiB with each call, from another place each time: long enough to be measured, short
enough to be over, most times, before the system gives the core to somebody else.

Before anything is timed, each executor makes each of its moves once between filled pools, and every byte is compared.
What moves wrong bytes is not timed. Verification is never inside a timed span.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from kvproof.check.data_plane import compare, triton_verify
from kvproof.check.data_plane.arena import Arena
from kvproof.check.data_plane.bandwidth_load import VERIFY, WITHIN, Timed, mappings, plain_copies, reference_of
from kvproof.check.data_plane.environment import device_name
from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.layouts import Geometry, Layout
from kvproof.check.data_plane.moves import Moves, PoolId
from kvproof.check.data_plane.pattern import row_keys
from kvproof.check.data_plane.spreads import noise, spread
from kvproof.check.data_plane.stopwatch import Stopwatch
from kvproof.check.data_plane.threads import one_thread
from kvproof.check.data_plane.world import World
from kvproof.spec.data_plane_report import Bandwidth, HostCost, Speed

NUM_SITTINGS = 3
ROUNDS_MIN, ROUNDS_MAX = 5, 200  # of a sitting
HOST_COST_PAIRS, HOST_COST_BYTES, HOST_COST_ROUNDS = 128, 64, 15
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class BandwidthConfig:
    """What is measured, and for how long: five rounds of each sitting at least, then until the seconds are over.

    num_pairs: of one call. num_places: how many mappings of as many pairs the rounds go through in turn. Sizes are
    those for main memory; `on_cuda` has those for a GPU, whose copies must be large to show its speed.
    """

    executors: tuple[Executor, ...]
    device: str = "cpu"
    layout: Layout = Layout.TWO_PLANES
    dtype: str = "bfloat16"
    seed: int = 0
    seconds: float = 5.0
    num_layers: int = 2
    num_pairs: int = 16
    num_places: int = 12

    def on_cuda(self) -> BandwidthConfig:
        """The same with 128 MiB for each call, of pools of 512 MiB."""
        return replace(self, num_layers=8, num_pairs=256, num_places=2)

    def geometry(self) -> Geometry:
        """Blocks of 16 tokens of 8 heads of 128, as of a model of 8 billion parameters; a latent row has 576."""
        heads, size = (1, 576) if self.layout is Layout.LATENT else (8, 128)
        num_blocks = 2 * self.num_pairs * self.num_places
        return Geometry(self.layout, self.dtype, 16, heads, size, self.num_layers, num_blocks, num_blocks)

    def tiny_geometry(self) -> Geometry:
        """Blocks so small that moving them costs nothing but the call."""
        num_blocks = 2 * HOST_COST_PAIRS
        return Geometry(self.layout, "uint8", 1, 1, HOST_COST_BYTES, 1, num_blocks, num_blocks)


def run_bandwidth(config: BandwidthConfig, on_progress: Progress = lambda what, done, total: None) -> Bandwidth:
    """Prove, then time, three times over."""
    with one_thread():
        sittings = [_Sitting(config, number, on_progress) for number in range(NUM_SITTINGS)]
        stopwatch = Stopwatch(torch.device(config.device))
        for sitting in sittings:
            sitting.run(stopwatch)
        busy = stopwatch.busy
        on_progress("host cost", NUM_SITTINGS, NUM_SITTINGS)
        host_costs = _host_costs(config, stopwatch)
    geometry = config.geometry()
    return Bandwidth(
        device=torch.device(config.device).type,
        device_name=device_name(torch.device(config.device)),
        layout=geometry.layout.value,
        dtype=geometry.dtype,
        block_bytes=geometry.block_bytes,
        num_rounds=sum(len(sitting.plain[0].seconds) for sitting in sittings),
        references=_speeds([sitting.plain for sitting in sittings], sittings),
        moves=_speeds([sitting.moves for sitting in sittings], sittings),
        verification=_speeds([sitting.verification for sitting in sittings], sittings),
        host_costs=host_costs,
        busy=busy,
        drift=max(sitting.drift() for sitting in sittings),
        skipped=list(dict.fromkeys(reason for sitting in sittings for reason in sitting.skipped)),
    )


class _Sitting:
    """Some rounds in memory of their own, which is given back after them."""

    def __init__(self, config: BandwidthConfig, number: int, on_progress: Progress) -> None:
        self.config, self.number, self.on_progress = config, number, on_progress
        self.device, self.geometry = torch.device(config.device), config.geometry()
        self.plain: list[Timed] = []
        self.again: list[Timed] = []
        self.moves: list[Timed] = []
        self.verification: list[Timed] = []
        self.skipped: list[str] = []

    def run(self, stopwatch: Stopwatch) -> None:
        """Prove every move, then time everything in turn."""
        num_bytes = self.config.num_pairs * self.geometry.block_bytes
        world = World(self.geometry, self.device)
        self.moves, self.verification = self._moves(world), self._verification()
        self.plain, self.again = (plain_copies(world, num_bytes, self.config.num_places) for _ in range(2))
        timed = [*self.plain, *self.moves, *self.verification, *self.again]
        for one in timed:  # the first time pays for pages and kernels
            for work in one.works:
                began = time.perf_counter()
                work()
                one.host_seconds = time.perf_counter() - began
        deadline = time.monotonic() + self.config.seconds / NUM_SITTINGS
        for number in range(ROUNDS_MAX):
            if number >= ROUNDS_MIN and time.monotonic() >= deadline:
                break
            self.on_progress("timing", self.number, NUM_SITTINGS)
            for index, one in enumerate(timed, start=number * len(timed)):
                work = one.works[index % len(one.works)]  # the next place, or one would warm the cache for the other
                one.seconds.append(stopwatch.lap(work, one.host_seconds).seconds)
        for one in timed:
            one.works = ()

    def drift(self) -> float:
        """How far two timings of one plain copy differ, relative."""
        pairs = zip(self.plain, self.again, strict=True)
        return max(abs(float(np.median(again.speeds()) / np.median(one.speeds())) - 1) for one, again in pairs)

    def _moves(self, world: World) -> list[Timed]:
        """Each executor with each mapping, proven to move the right bytes."""
        config, found = self.config, []
        kinds = mappings(self.geometry, config.num_pairs, config.num_places, config.seed + self.number)
        payload = config.num_pairs * self.geometry.block_bytes
        for executor in config.executors:
            self.on_progress(f"proving {executor.name}", self.number, NUM_SITTINGS)
            if reason := executor.unsupported(self.geometry, self.device):
                self.skipped.append(f"{executor.name}: {reason}")
                continue
            move = executor.prepare(world.caches())
            for name, places in kinds.items():
                if wrong := _wrong_rows(world, move, places):
                    self.skipped.append(f"{executor.name}, {name}: it left {wrong:,} rows wrong, so it was not timed")
                    continue
                works = [partial(move, moves) for moves in places]
                reference = reference_of(places[0])
                found.append(Timed(executor.name, name, works, payload, reference, config.num_pairs))
        return found

    def _verification(self) -> list[Timed]:
        """Every way to compare that this device has, on memory as large as the GPU's pool."""
        arena = Arena(self.geometry, PoolId.GPU, self.device)
        arena.fill()
        keys, columns = row_keys(arena.labels), arena.columns
        num_rows = max(1, len(keys) // self.config.num_places)
        places = [slice(first, first + num_rows) for first in range(0, len(keys) - num_rows + 1, num_rows)]
        timed = []
        for name, way in _ways_to_compare(self.device).items():
            works = [partial(way, arena.memory[place], keys[place], columns) for place in places]
            timed.append(Timed(name, VERIFY, works, num_rows * self.geometry.row_bytes, WITHIN))
        return timed


def _wrong_rows(world: World, move: MoveBlocks, places: list[Moves]) -> int:
    """Make every move once, and compare both pools whole; wrong rows are put right again."""
    for moves in places:
        world.expect(moves)
        move(moves)
    world.synchronize()
    wrong = world.wrong()
    for pool, rows in wrong.items():
        world.arenas[pool].fill_rows(rows)
    world.synchronize()
    return sum(len(rows) for rows in wrong.values())


def _ways_to_compare(device: torch.device) -> dict[str, compare.Comparer]:
    if device.type != "cuda":
        return {"memcmp": compare.by_memcmp, "torch": compare.by_torch}
    ways: dict[str, compare.Comparer] = {"torch on the device": compare.by_device}
    if triton_verify.is_available():
        ways["one Triton kernel"] = triton_verify.bad_rows
    return ways


def _host_costs(config: BandwidthConfig, stopwatch: Stopwatch) -> list[HostCost]:
    """What a pair costs when its bytes are next to nothing."""
    geometry = config.tiny_geometry()
    world, costs = World(geometry, stopwatch.device), []
    kinds = mappings(geometry, HOST_COST_PAIRS, 1, config.seed)
    for executor in config.executors:
        if executor.unsupported(geometry, stopwatch.device):
            continue
        move = executor.prepare(world.caches())
        for name, (moves,) in kinds.items():
            work = partial(move, moves)
            work()
            laps = [stopwatch.lap(work).host_seconds for _ in range(HOST_COST_ROUNDS)]
            costs.append(HostCost(executor.name, name, moves.num_pairs, spread(np.array(laps) * 1e6 / moves.num_pairs)))
    return costs


def _speeds(of_sittings: list[list[Timed]], sittings: list[_Sitting]) -> list[Speed]:
    """One speed for what was timed in every sitting."""
    by_key = [{one.key: one for one in timed} for timed in of_sittings]
    return [
        _speed([keyed[one.key] for keyed in by_key], sittings)
        for one in of_sittings[0]
        if all(one.key in keyed for keyed in by_key)
    ]


def _speed(parts: list[Timed], sittings: list[_Sitting]) -> Speed:
    first = parts[0]
    ratios = []
    for part, sitting in zip(parts, sittings, strict=True):
        (reference,) = (plain for plain in sitting.plain if plain.mapping == first.reference)
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
