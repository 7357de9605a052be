"""One trial: several rounds in newly allocated memory. Each round times everything once, in a random order.

Before anything is timed, each executor makes each of its moves once between filled pools, and every byte is compared.
An executor that moves wrong bytes, raises, hangs or is too slow is not timed.

Timed are mappings of every kind, and the plain copies to which they are compared.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.compare import compare, triton_verify
from kvproof.check.data_plane.device import reason_of
from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.executors.isolation import Crashed, ExecutorRaised, Hung, Isolation
from kvproof.check.data_plane.memory.layouts import Geometry
from kvproof.check.data_plane.memory.world import Arena, World
from kvproof.check.data_plane.speed.stopwatch import Stopwatch
from kvproof.check.data_plane.steps.moves import Moves, Pair, PoolId
from kvproof.check.hosts.interrupt import is_from_outside
from kvproof.check.hosts.time_limit import require_time
from kvproof.impl import free_bytes

VERIFY = "verify"
IN, OUT, WITHIN = "CPU pool to GPU pool", "GPU pool to CPU pool", "within the GPU pool"
COMPARED = "of what is compared"
READ = "plain read"

ROUNDS_MIN, ROUNDS_MAX = 5, 200
PROOF_SECONDS_MAX = 20.0  # for checking the moves of one executor in one trial
VERIFIED_BYTES = 16 * 1024 * 1024  # compared by one call, in main memory
# Compared by one call on a GPU, which reads 4 TB/s: in less memory the call would be measured.
VERIFIED_ON_CUDA_BYTES = 4 * 1024 * 1024 * 1024
OnWork = Callable[[str, int, int], None]


@dataclass
class Timed:
    """One thing that is timed in every round, and its times.

    works: calls that do the same at different places; the rounds use them in turn. A call in another process returns
    the seconds that it took there (`TakenThere`). reference: the plain copy to which it is compared; for a plain copy,
    itself. host_seconds: the time until the first call returned. seconds: one value per round.
    """

    name: str
    mapping: str
    works: Sequence[Callable[[], object]]
    num_bytes: int
    reference: str
    num_pairs: int = 0
    host_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """The identity among the timed things."""
        return self.name, self.mapping

    def speeds(self) -> NDArray[np.float64]:
        """The speeds in 1e9 bytes per second, one per round."""
        return self.num_bytes / np.array(self.seconds) / 1e9


def mappings(geometry: Geometry, num_pairs: int, num_places: int, seed: int) -> dict[str, list[Moves]]:
    """For each kind of move, `num_places` mappings of `num_pairs` pairs each, at different places of the pools.

    The kinds are swap in, swap out and copy, each with adjacent and with scattered blocks. No target is also a source.
    Each pool must have 2 * num_pairs * num_places blocks.
    """
    drawn = random.Random(seed)
    gpu, cpu = list(range(geometry.num_gpu_blocks)), list(range(geometry.num_cpu_blocks))
    kinds: dict[str, list[Moves]] = {}
    half = num_pairs * num_places
    for order in ("in a row", "scattered"):
        if order == "scattered":
            drawn.shuffle(gpu)
            drawn.shuffle(cpu)
        kinds[f"swap in, {order}"] = [Moves(swap_in=pairs) for pairs in _cut(cpu[:half], gpu[:half], num_pairs)]
        kinds[f"swap out, {order}"] = [Moves(swap_out=pairs) for pairs in _cut(gpu[half:], cpu[half:], num_pairs)]
        kinds[f"copy, {order}"] = [Moves(copy=pairs) for pairs in _cut(gpu[:half], gpu[half:], num_pairs)]
    return kinds


def plain_copies(world: World, num_bytes: int, num_places: int, label: str = "") -> list[Timed]:
    """Plain copies of contiguous bytes in the memory of the pools: the best that the machine can do.

    There is one for each direction, because the speed depends on the place of memory and on the direction. They
    overwrite the pools.
    """
    num_words = num_bytes // 8
    gpu, cpu = (world.arenas[pool].memory.view(-1) for pool in (PoolId.GPU, PoolId.CPU))
    low, high = range(num_places), range(num_places, 2 * num_places)

    def plain(direction: str, target: torch.Tensor, targets: range, source: torch.Tensor, sources: range) -> Timed:
        tensors = [
            (target[a * num_words : (a + 1) * num_words], source[b * num_words : (b + 1) * num_words])
            for a, b in zip(targets, sources, strict=True)
        ]
        return plain_copy(direction + label, tensors, num_bytes)

    return [plain(IN, gpu, low, cpu, low), plain(OUT, cpu, high, gpu, high), plain(WITHIN, gpu, high, gpu, low)]


def plain_copy(name: str, tensors: Sequence[tuple[torch.Tensor, torch.Tensor]], num_bytes: int) -> Timed:
    """Copies of `num_bytes` bytes each. tensors: pairs of target and source."""
    works = [partial(target.copy_, source, non_blocking=True) for target, source in tensors]
    return Timed("plain copy", name, works, num_bytes, name)


def plain_read(memory: torch.Tensor) -> Timed:
    """A read of memory of which nothing is written but one number: the limit of a comparison on a GPU."""
    return Timed(READ, COMPARED, [partial(torch.sum, memory)], memory.nbytes, COMPARED)


def reference_of(moves: Moves) -> str:
    """The name of the plain copy in the direction of these moves."""
    if moves.swap_in:
        return IN
    return OUT if moves.swap_out else WITHIN


def _cut(sources: list[int], targets: list[int], num_pairs: int) -> list[tuple[Pair, ...]]:
    pairs = tuple(zip(sources, targets, strict=True))
    return [pairs[first : first + num_pairs] for first in range(0, len(pairs), num_pairs)]


@dataclass(frozen=True)
class TimedWork:
    """What a trial times. num_pairs: of one call. num_places: the number of mappings that the rounds use in turn.

    kinds: prefixes of the names of the mappings; empty for all. label: suffix that distinguishes the names of this load
    from those of other loads. isolation: the process of the only executor, which is a user's. verifies: whether
    comparing is timed too.
    """

    geometry: Geometry
    executors: tuple[Executor, ...]
    num_pairs: int
    num_places: int
    kinds: tuple[str, ...] = ()
    label: str = ""
    isolation: Isolation | None = None
    verifies: bool = False

    @property
    def payload_bytes(self) -> int:
        """Bytes that one call moves."""
        return self.num_pairs * self.geometry.block_bytes

    def mappings(self, seed: int) -> dict[str, list[Moves]]:
        """The mappings by name, without the label."""
        made = mappings(self.geometry, self.num_pairs, self.num_places, seed)
        return {name: places for name, places in made.items() if name.startswith(self.kinds or ("",))}

    def world(self, device: torch.device) -> World:
        """Filled pools, in memory that is shared with the executor's process if it has one."""
        return World(self.geometry, device, self.isolation.share(self.geometry) if self.isolation else None)

    def prepared(self, executor: Executor, world: World) -> MoveBlocks:
        if self.isolation is None:
            move = executor.prepare(world.caches())
            return _raising(move) if executor.is_own else move
        self.isolation.open(self.geometry)
        return self.isolation.move


class Trial:
    """The timings of one load in one piece of memory.

    plain, again: two timings of the same plain copies. moves: the executors. verification: the ways to compare.
    skipped: what was not timed, and why. is_first: of the trials of a load. It compares both pools after each mapping;
    the others once for each executor, and again after each mapping only if a byte is wrong, because a comparison takes
    longer than a move.
    """

    def __init__(self, load: TimedWork, device: torch.device, seed: int, is_first: bool = True) -> None:
        self.load, self.device, self.seed, self.is_first = load, device, seed, is_first
        self.plain: list[Timed] = []
        self.again: list[Timed] = []
        self.moves: list[Timed] = []
        self.verification: list[Timed] = []
        self.skipped: list[str] = []

    def run(self, stopwatch: Stopwatch, seconds: float, report: Callable[[str], None]) -> None:
        """Check every move, then time everything: at least five rounds, and then until the seconds are over.

        Raises OutOfTime between two moves if the time of the run (`calls_end_at`) is over.
        """
        world = self.load.world(self.device)
        self.moves = self._moves(world, report)
        self.plain, self.again = (self._plain(world) for _ in range(2))
        if self.load.verifies:
            self.verification = self._verification(world)
        timed = [*self.plain, *self.moves, *self.verification, *self.again]
        for one in timed:  # the first call allocates pages and compiles kernels
            for work in one.works:
                require_time()
                began = time.perf_counter()
                work()
                one.host_seconds = time.perf_counter() - began
        drawn, deadline = random.Random(self.seed), time.monotonic() + seconds
        for number in range(ROUNDS_MAX):
            if number >= ROUNDS_MIN and time.monotonic() >= deadline:
                break
            report("timing")
            order = drawn.sample(timed, len(timed))  # in a fixed order the caches would favour the same ones each time
            for index, one in enumerate(order, start=number * len(order)):
                require_time()
                work = one.works[index % len(one.works)]
                one.seconds.append(stopwatch.lap(work, one.host_seconds))
        for one in timed:
            one.works = ()

    def drift(self) -> float:
        """The greatest relative difference between two timings of the same plain copy."""
        pairs = zip(self.plain, self.again, strict=False)
        return max(abs(float(np.median(again.speeds()) / np.median(one.speeds())) - 1) for one, again in pairs)

    def _plain(self, world: World) -> list[Timed]:
        return plain_copies(world, self.load.payload_bytes, self.load.num_places, self.load.label)

    def _moves(self, world: World, report: Callable[[str], None]) -> list[Timed]:
        """Each executor with each mapping, if it moves the right bytes."""
        load, found = self.load, []
        kinds = load.mappings(self.seed)
        for executor in load.executors:
            report(f"checking {executor.name}")
            if reason := executor.unsupported(load.geometry, self.device):
                self.skipped.append(f"{executor.name}: {reason}")
                continue
            deadline = time.monotonic() + PROOF_SECONDS_MAX
            try:
                move = load.prepared(executor, world)
                everything = [moves for places in kinds.values() for moves in places]
                are_right = not self.is_first and not _wrong_rows(world, move, everything, deadline)
                for name, places in kinds.items():
                    mapping = name + load.label
                    if not are_right and (wrong := _wrong_rows(world, move, places, deadline)):
                        self.skipped.append(
                            f"{executor.name}, {mapping}: {wrong:,} rows were wrong, so it was not timed"
                        )
                        continue
                    works = [partial(move, moves) for moves in places]
                    reference = reference_of(places[0]) + load.label
                    found.append(Timed(executor.name, mapping, works, load.payload_bytes, reference, load.num_pairs))
            except Exception as error:
                if not (executor.is_own or isinstance(error, ExecutorRaised | Hung | Crashed | _TooSlow)):
                    raise
                found = [one for one in found if one.name != executor.name]
                self.skipped.append(f"{executor.name}{load.label}: {error}")
        return found

    def _verification(self, world: World) -> list[Timed]:
        """Every way to compare on this device. Adds the reference: a plain copy, or on CUDA a plain read."""
        if self.device.type == "cuda":
            arena = Arena(self._verified_on_cuda(), PoolId.GPU, self.device)
            arena.fill()
            self.plain.append(plain_read(arena.memory))
            place = slice(len(arena.labels))
            return [
                Timed(name, VERIFY, [_comparison(way, arena, place)], arena.memory.nbytes, COMPARED)
                for name, way in _ways_to_compare(self.device).items()
            ]
        arena = Arena(self.load.geometry, PoolId.GPU, self.device)
        arena.fill()
        num_rows = min(len(arena.labels), max(1, VERIFIED_BYTES // self.load.geometry.row_bytes))
        places = [slice(first, first + num_rows) for first in range(0, len(arena.labels) - num_rows + 1, num_rows)]
        num_bytes, pool = num_rows * self.load.geometry.row_bytes, world.arenas[PoolId.GPU].memory
        timed = []
        for name, way in _ways_to_compare(self.device).items():
            works = [_comparison(way, arena, place) for place in places]
            timed.append(Timed(name, VERIFY, works, num_bytes, COMPARED))
        self.plain.append(plain_copy(COMPARED, [(pool[place], arena.memory[place]) for place in places], num_bytes))
        return timed

    def _verified_on_cuda(self) -> Geometry:
        """The load's layout with as many blocks as a quarter of the free memory has room for, and not too many."""
        shape, most = self.load.geometry, min(VERIFIED_ON_CUDA_BYTES, free_bytes(self.device) // 4)
        return replace(shape, num_gpu_blocks=max(1, most // shape.block_bytes))


def _raising(move: MoveBlocks) -> MoveBlocks:
    """A user's executor in this process: any of its exceptions, even one that ends a run, becomes ExecutorRaised."""

    def moved(moves: Moves) -> object:
        try:
            return move(moves)
        except BaseException as error:
            if is_from_outside(error):
                raise
            raise ExecutorRaised(reason_of(error)) from error

    return moved


class _TooSlow(Exception):
    """An executor takes too long to be timed; the text gives the limit."""


def _comparison(way: compare.Comparer, arena: Arena, place: slice) -> Callable[[], object]:
    """A call that compares a part of the memory."""
    return partial(way, arena.memory[place], arena.labels[place], arena.columns)


def _wrong_rows(world: World, move: MoveBlocks, places: Sequence[Moves], deadline: float) -> int:
    """Make every move once, and compare both pools. Returns the number of wrong rows, after restoring them."""
    for number, moves in enumerate(places, start=1):
        require_time()
        world.expect(moves)
        move(moves)
        if time.monotonic() > deadline and number < len(places):
            raise _TooSlow(f"its moves could not be checked within {PROOF_SECONDS_MAX:g} s, so it was not timed")
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
    if not triton_verify.refusal(device):
        ways["one Triton kernel"] = triton_verify.bad_rows
    return ways
