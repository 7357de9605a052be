"""The speed of the built-in block manager and of vLLM's: the same calls on both, in turns, in one process.

48 sequences with distinct prompts of 1,024 tokens have several lives: in each they are admitted, decoded, swapped out
and in, forked and freed. Both managers run each phase directly after one another, and the one that is first changes
with each life. A figure is the median over the lives; the ratio is vLLM's median divided by ours. `driven` explains how
they are timed.

The garbage collector runs between lives only, and the cache is emptied then, so that all prompts are new to both. The
pool has the size of a small server: vLLM's swap sorts the ids of a whole device for each block, so its cost grows with
the pool.

Phases without a goal are further calls of an engine; they are printed so that no cost hides between two phases.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

from benchmarks.driven import (
    BLOCK_SIZE,
    MODES,
    OURS,
    THEIRS,
    Clock,
    Driven,
    LightGroup,
    LightSequence,
    managers,
    ours,
    resident_megabytes,
    shown,
    theirs,
)

GEOMETRIC_MEAN_GOAL = 8.0
SECONDS_MAX, MEGABYTES_MAX = 0.3, 200.0
GOALS = {
    "allocate a prompt": 3.0,
    "append a token": 3.0,
    "swap out and in": 200.0,
    "fork": 3.0,
    "first append after a fork": 3.0,
    "get_block_table": 3.0,
    "free": 3.0,
}


@dataclass(frozen=True)
class Shape:
    """The size of the workload."""

    num_seqs: int = 48
    prompt_tokens: int = 1_024  # whole blocks
    num_blocks: int = 8_192  # on each device
    num_lives: int = 11
    num_table_reads: int = 10  # of each table; one read alone is too short to be timed
    num_constructed_blocks: int = 1_000_000


class Load:
    """One manager with its workload."""

    def __init__(self, driven: Driven, caching: bool, shape: Shape) -> None:
        self.driven, self.caching, self.shape = driven, caching, shape
        blocks = shape.num_blocks
        self.manager = driven.make(
            block_size=BLOCK_SIZE, num_gpu_blocks=blocks, num_cpu_blocks=blocks, enable_caching=caching
        )
        self.clock = Clock()
        self.now = 0.0

    def append(self, seqs: list[LightSequence]) -> float:
        """Append one token to each sequence; returns microseconds per call."""
        for seq in seqs:
            seq.tokens.append(seq.seq_id + len(seq.tokens))
        return self.clock.each_pair(self.manager.append_slots, [(seq, 0) for seq in seqs])

    def step(self, groups: list[LightGroup]) -> float:
        """Make the other calls that an engine makes for each sequence of a step; returns microseconds per sequence."""
        self.now += 1.0
        manager, seqs = self.manager, [seq for group in groups for seq in group.seqs]
        chunk = len(seqs[0].tokens) - seqs[0].num_computed
        access = self.clock.each_pair(manager.access_all_blocks_in_seq, [(seq, self.now) for seq in seqs])
        mark = self.clock.each_pair(manager.mark_blocks_as_computed, [(group, chunk) for group in groups])
        for seq in seqs:
            seq.num_computed = len(seq.tokens)
        return access + mark

    def life(self, prompts: list[list[int]]) -> Iterator[tuple[str, float]]:
        """Each phase of one life: its name, and microseconds per call. In the end the manager is as new."""
        manager, status = self.manager, self.driven.status
        groups = [
            LightGroup(str(number), [LightSequence(number, prompt[:], status.WAITING)])
            for number, prompt in enumerate(prompts)
        ]
        parents = [group.seqs[0] for group in groups]
        if self.caching:
            yield "look a prompt up", self.clock.each(manager.get_num_cached_tokens, parents)
        yield "allocate a prompt", self.clock.each(manager.allocate, groups)
        for seq in parents:
            seq.status = status.RUNNING
        yield "end of a prompt's step", self.step(groups)

        # From the middle of one block to the middle of the next: one of these appends opens a block and one fills one.
        for _ in range(BLOCK_SIZE // 2):
            self.append(parents)
            self.step(groups)
        costs = [(self.append(parents), self.step(groups)) for _ in range(BLOCK_SIZE)]
        yield "append a token", statistics.fmean(cost for cost, _ in costs)
        yield "end of a token's step", statistics.fmean(cost for _, cost in costs)
        yield "swap out and in", self.clock.round_trip(manager, status, groups)

        children = [LightSequence(len(groups) + seq.seq_id, seq.tokens[:], seq.status) for seq in parents]
        family = list(zip(parents, children, strict=True))
        yield "fork", self.clock.each_pair(manager.fork, family)
        for group, (parent, child) in zip(groups, family, strict=True):
            child.num_computed = parent.num_computed
            group.seqs.append(child)
        if self.caching:
            for child in children:
                manager.get_num_cached_tokens(child)  # vLLM frees only what it has looked up
        yield "first append after a fork", self.append(children)
        yield "append of the forked", self.append(parents)
        self.step(groups)

        everyone = [seq for group in groups for seq in reversed(group.seqs)]
        many = everyone * self.shape.num_table_reads
        yield "get_block_table", statistics.median(self.clock.each(manager.get_block_table, many) for _ in range(10))
        yield "free", self.clock.each(manager.free, everyone)
        if not manager.reset_prefix_cache() or manager.get_num_free_gpu_blocks() != self.shape.num_blocks:
            raise RuntimeError(f"{self.driven.name} still holds blocks when every sequence is freed")


# Measuring --------------------------------------------------------------------------------------------------------


def phases(driven: list[Driven], caching: bool, shape: Shape) -> dict[str, dict[str, float]]:
    """Microseconds per call of each phase and manager."""
    draw = random.Random(1)
    loads = [Load(one, caching, shape) for one in driven]
    costs: dict[str, dict[str, list[float]]] = {}
    try:
        for number in range(shape.num_lives + 1):
            prompts = [draw.choices(range(32_000), k=shape.prompt_tokens) for _ in range(shape.num_seqs)]
            gc.enable()
            gc.collect()
            gc.disable()
            turns = loads if number % 2 else loads[::-1]
            for row in zip(*(load.life(prompts) for load in turns), strict=True):
                for load, (phase, cost) in zip(turns, row, strict=True):
                    costs.setdefault(phase, {}).setdefault(load.driven.name, []).append(cost)
    finally:
        gc.enable()
    # The first life is left out: in it the interpreter still adapts.
    return {phase: {who: statistics.median(each[1:]) for who, each in by.items()} for phase, by in costs.items()}


def construction(driven: list[Driven], caching: bool, shape: Shape) -> dict[str, dict[str, float]]:
    """Seconds and MB that each manager takes to be made, each in a new process."""
    made = {}
    for one in driven:
        with get_context("spawn").Pool(1) as fresh:
            seconds, megabytes = fresh.apply(construct, (one.name, caching, shape.num_constructed_blocks))
        made[one.name] = {"seconds": seconds, "megabytes": megabytes}
    return made


def construct(name: str, caching: bool, num_blocks: int) -> tuple[float, float]:
    """Make one manager; seconds of processor time, and MB of memory that the process grows by."""
    make = ours().make if name == OURS else theirs().make
    before, began = resident_megabytes(), time.thread_time()
    manager = make(block_size=BLOCK_SIZE, num_gpu_blocks=num_blocks, num_cpu_blocks=0, enable_caching=caching)
    seconds, after = time.thread_time() - began, resident_megabytes()
    return seconds, max(0.0, after - before) if manager is not None else 0.0


@dataclass(frozen=True)
class Goal:
    """What is wanted, what was measured, and whether it is enough. `is_met` is None where nothing was compared.

    scaled, is_met_scaled: the same as it would be on the host on which the goal was set, if that depends on the host.
    """

    name: str
    wanted: str
    measured: str
    is_met: bool | None
    scaled: str = ""
    is_met_scaled: bool | None = None


def ratios(costs: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """How many times faster we are, of the phases in which both were measured."""
    return {phase: by[THEIRS] / by[OURS] for phase, by in costs.items() if OURS in by and THEIRS in by}


def goals(costs: Mapping[str, Mapping[str, float]], made: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    """Every goal of one mode."""
    found, faster = [], ratios(costs)
    for phase, wanted in GOALS.items():
        got = faster.get(phase)
        found.append(
            Goal(phase, f"{wanted:g} times faster", f"{got:.2f}" if got else "", got >= wanted if got else None)
        )
    mean = statistics.geometric_mean(faster[phase] for phase in GOALS) if set(GOALS) <= set(faster) else None
    found.append(
        Goal(
            "geometric mean of these",
            f"{GEOMETRIC_MEAN_GOAL:g} times faster",
            f"{mean:.2f}" if mean else "",
            mean >= GEOMETRIC_MEAN_GOAL if mean else None,
        )
    )
    seconds, megabytes = made[OURS]["seconds"], made[OURS]["megabytes"]
    is_light = seconds <= SECONDS_MAX and megabytes <= MEGABYTES_MAX
    measured = f"{seconds:.2f} s, {megabytes:.0f} MB"
    found.append(Goal("construction", f"{SECONDS_MAX:g} s, {MEGABYTES_MAX:g} MB", measured, is_light))
    return found


def report(mode: str, costs: Mapping[str, Mapping[str, float]], made: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    """Print one mode; returns its goals."""
    faster, reached = ratios(costs), goals(costs, made)
    names = list(made)
    print(f"\n{mode}: microseconds per call" + "".join(f"{name:>14}" for name in names) + f"{'ratio':>10}")
    for phase, by in sorted(costs.items(), key=lambda item: item[0] not in GOALS):
        ratio = f"{faster[phase]:>10.2f}" if phase in faster else ""
        mark = "" if phase in GOALS else "  (no goal)"
        print(f"  {phase:<{len(mode) + 22}}" + "".join(f"{shown(by[name]):>14}" for name in names) + ratio + mark)
    for unit in ("seconds", "megabytes"):
        label = f"construction, {unit}"
        print(f"  {label:<{len(mode) + 22}}" + "".join(f"{made[name][unit]:>14,.2f}" for name in names))
    for goal in reached:
        state = {True: "met", False: "missed", None: "not compared"}[goal.is_met]
        print(
            f"  goal {state:<12} {goal.name}: {goal.wanted}" + (f"; measured {goal.measured}" if goal.measured else "")
        )
    return reached


def main(shape: Shape | None = None) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    shape = shape or Shape()
    driven, missing = managers()
    print(
        f"manager: {shape.num_seqs} sequences of {shape.prompt_tokens:,} tokens, {shape.num_blocks:,} blocks of "
        f"{BLOCK_SIZE} tokens on each device, medians over {shape.num_lives} lives"
    )
    if missing:
        print(missing)
    figures: dict[str, Any] = {"shape": asdict(shape), "missing": missing}
    for mode, caching in MODES.items():
        costs, made = phases(driven, caching, shape), construction(driven, caching, shape)
        reached = report(mode, costs, made)
        figures[mode] = {
            "microseconds_per_call": costs,
            "ratios": ratios(costs),
            "construction": made,
            "goals": [asdict(goal) for goal in reached],
        }
    return figures


if __name__ == "__main__":
    main()
