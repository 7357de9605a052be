"""Measure what recording adds to a call of each engine's manager, and how the cost grows with what a call names.

Two managers go through the same rounds, one with a recorder and one without; they take turns, and the order changes
with each round. The time of a phase is divided by the lines that the recorder wrote in it; the median of the
differences counts. Each size is measured in several processes, one after all the other engines, so that the minute in
which a shared machine is slow does not decide. The times are processor times of the calling thread, and of the whole
process: a thread beside the server that holds the interpreter would cost the server too. The process that writes the
recording is not counted. A line through the sizes gives the cost as a fixed part for each call, and a part for each
token or key. `bounds` has what it takes to copy the tokens of a prompt, which no recorder can go below.

What the goal is about is the mean of the calls of a served request: its admission, its 200 steps and its end. It is
computed from the phases, and printed for each size beside the goal.
"""

from __future__ import annotations

import gc
import statistics
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from benchmarks.recorded_managers import MANAGERS, Driven
from kvproof.check.recording import record
from kvproof.check.recording.recorder import Recorder
from kvproof.check.subjects.loading import EngineError

NUM_PROCESSES = 3
NUM_ROUNDS, NUM_ROUNDS_FIRST = 7, 3  # of a process; the first are not counted
GOAL_US = 15.0
NUM_TOKENS = 4_000  # of a prompt that is copied


class Seconds(NamedTuple):
    """Processor time of the calling thread and of its process."""

    thread: float
    process: float

    def for_each(self, number: int) -> Seconds:
        """The time of one of so many."""
        return Seconds(self.thread / number, self.process / number)


def timed(phase: Callable[[], object]) -> Seconds:
    """What a phase takes."""
    process, thread = time.process_time(), time.thread_time()
    phase()
    thread_after, process_after = time.thread_time(), time.process_time()
    return Seconds(thread_after - thread, process_after - process)


class Added(NamedTuple):
    """Microseconds that recording adds to a call of a phase, and that the call takes without; the lines of a round."""

    thread: float
    process: float
    bare: float
    lines: float


Round = tuple[int, Seconds, Seconds]  # of a phase: its lines, the seconds of a line without and with a recorder
Rounds = dict[str, list[Round]]  # of each phase


def measured(kind: type[Driven], size: int, path: Path) -> Rounds:
    """What the phases take in this process, with calls of this size."""
    bare, recorded = kind(size), kind(size)
    rounds: Rounds = {}
    with record(recorded.manager, path) as recorder:
        for number in range(NUM_ROUNDS_FIRST + NUM_ROUNDS):
            for name, one in _round(bare, recorded, recorder, number):
                if number >= NUM_ROUNDS_FIRST:
                    rounds.setdefault(name, []).append(one)
        if not recorder.is_on:
            raise RuntimeError(f"the recording of {kind.name} stopped early")
    return rounds


def added(rounds: list[Round]) -> Added:
    """The added cost of a phase."""
    return Added(
        1e6 * statistics.median(recorded.thread - bare.thread for _, bare, recorded in rounds),
        1e6 * statistics.median(recorded.process - bare.process for _, bare, recorded in rounds),
        1e6 * statistics.median(bare.thread for _, bare, _ in rounds),
        statistics.fmean(lines for lines, _, _ in rounds),
    )


def served(kind: type[Driven], phases: dict[str, Added]) -> float:
    """The mean cost of the calls of a served request, in microseconds."""
    lines = {name: one.lines * kind.often.get(name, 1) for name, one in phases.items()}
    return sum(phases[name].thread * number for name, number in lines.items()) / sum(lines.values())


def _round(bare: Driven, recorded: Driven, recorder: Recorder, number: int) -> Iterator[tuple[str, Round]]:
    """Each phase that has lines."""
    gc.collect()
    gc.disable()
    for (name, phase), (_, phase_recorded) in zip(bare.phases(), recorded.phases(), strict=True):
        before = recorder.num_lines
        if number % 2:
            without, with_recorder = timed(phase), timed(phase_recorded)
        else:
            with_recorder, without = timed(phase_recorded), timed(phase)
        if num_lines := recorder.num_lines - before:
            yield name, (num_lines, without.for_each(num_lines), with_recorder.for_each(num_lines))
    gc.enable()


def measured_sizes(name: str, folder: str) -> dict[int, Rounds] | str:
    """What the phases take, by size, or why the engine is not here. In a process of its own: one has one release."""
    import torch

    torch.set_num_threads(1)  # its other threads would count for the process
    (kind,) = (one for one in MANAGERS if one.name == name)
    try:
        return {size: measured(kind, size, Path(folder) / "calls.jsonl") for size in kind.sizes}
    except EngineError as error:
        return str(error)


def line_through(points: list[tuple[int, float]]) -> tuple[float, float]:
    """The cost of a call, and that of each unit, in microseconds, by least squares."""
    return statistics.linear_regression(*zip(*points, strict=True))[::-1]


def bounds() -> dict[str, float]:
    """Nanoseconds for each token: to write a list of numbers as bytes at best, and to copy an array."""
    numbers, encoder = [Random(1).randrange(150_000) for _ in range(NUM_TOKENS)], msgspec.msgpack.Encoder()
    as_array = array("q", numbers)

    def best(copy: Callable[[], object]) -> float:
        return 1e9 * min(timed(copy).thread for _ in range(1_000)) / NUM_TOKENS

    return {"list": best(lambda: encoder.encode(numbers)), "array": best(as_array.tobytes)}


def main(folder: Path, kinds: Sequence[type[Driven]] = MANAGERS) -> dict[str, Any]:
    """Print the added cost for each engine, size and phase. Returns the figures."""
    figures: dict[str, Any] = {}
    bound = bounds()
    print(f"  to copy a token at best: {bound['list']:.1f} ns from a list, {bound['array']:.2f} ns from an array")
    results: dict[str, list[dict[int, Rounds]]] = {kind.name: [] for kind in kinds}
    is_skipped = set[str]()
    for _, kind in product(range(NUM_PROCESSES), kinds):
        if kind.name in is_skipped:
            continue
        with get_context("spawn").Pool(1) as pool:
            result = pool.apply(measured_sizes, (kind.name, str(folder)))
        if isinstance(result, str):
            print(f"  {kind.name:<28} skipped: {result}")
            is_skipped.add(kind.name)
        else:
            results[kind.name].append(result)
    for kind in kinds:
        if of_kind := results[kind.name]:
            by_size = {
                size: {phase: added([one for result in of_kind for one in result[size][phase]]) for phase in phases}
                for size, phases in of_kind[0].items()
            }
            figures[kind.name] = {"phases": report(kind, by_size), "served": report_served(kind, by_size)}
    return figures


def report(kind: type[Driven], by_size: dict[int, dict[str, Added]]) -> dict[str, Any]:
    """Print the cost of a call of each phase, by size. Returns the figures."""
    figures = {}
    for phase in by_size[kind.sizes[0]]:
        costs = {size: phases[phase] for size, phases in by_size.items()}
        of_call, of_unit = line_through([(size, one.thread) for size, one in costs.items()])
        figures[phase] = {
            "us/call": of_call,
            f"ns/{kind.unit}": 1e3 * of_unit,
            "worst us": max(max(one.thread, one.process) for one in costs.values()),
            "of size": {size: one._asdict() for size, one in costs.items()},
        }
        by = "  ".join(f"{size:,}: {one.thread:.1f} ({one.process:.1f})" for size, one in costs.items())
        fit = f"{of_call:.1f} us + {1e3 * of_unit:.1f} ns a {kind.unit}"
        print(f"  {kind.name:<28} {phase:<14} {fit:<28} {by}", flush=True)
    return figures


def report_served(kind: type[Driven], by_size: dict[int, dict[str, Added]]) -> dict[int, float]:
    """Print the mean of the calls of a served request beside the goal, by size. Returns the figures."""
    found = {size: served(kind, phases) for size, phases in by_size.items()}
    by = "  ".join(f"{size:,}: {one:.1f}" for size, one in found.items())
    print(f"  {kind.name:<28} {'served':<14} {f'at most {GOAL_US:g} us':<28} {by}", flush=True)
    return found
