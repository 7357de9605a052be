"""How long a walk takes to see a known fault of an engine: operations and processor seconds, medians over ten seeds.

F1, F2 and so on are the faults of the corpus that have a number, each in the newest release that has it. A walk ends at
the first finding that breaks the property as the saved run of the fault does; other findings only end their run, as in
a hunt that has reported them already. The seconds are those of the walk. Before it come the import of the engine and,
in a hunt, the small scopes, where some of these faults are seen earlier. A release that was not downloaded is left out,
with the command that downloads it.

The goal of F1 to F9 is half of what the walk of kvproof took at commit 1f1fd361; the others were found later, and
have none. Those seconds, and those of a first prototype with fewer features and properties, are means of two
measurements in turn with today's walk on one host. They are scaled to the host of the run.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.host_speed import SECONDS_OF_SIGHTS, slowness
from kvproof.check.counterexample.store import load
from kvproof.check.counterexample.trace_schema import config_of, operations_of
from kvproof.check.hunting.corpus.record import FaultRecord, read_all
from kvproof.check.hunting.corpus.validation import trace_of
from kvproof.check.oracle.replay import finding_of
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.registry import find

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SEEDS = range(1, 11)
NUM_OPERATIONS_MAX = 300_000
SECONDS_MAX = 600.0


class Goal(NamedTuple):
    """What the walk of 1f1fd361 and the prototype took, in seconds: medians of ten seeds on the host of the goals."""

    seconds_before: float
    seconds_of_prototype: float | None = None

    def scaled(self, slowness: float) -> float:
        """The seconds in which the fault should be seen, on a host that takes so many times as long."""
        return slowness * self.seconds_before / 2


class Sight(NamedTuple):
    """A fault was seen after so many operations and processor seconds."""

    num_operations: int
    seconds: float


GOALS = {
    "F1": Goal(0.13, 0.013),
    "F2": Goal(0.16, 0.113),
    "F3": Goal(3.07, 0.133),
    "F4": Goal(0.44, 0.03),
    "F5": Goal(0.227, 0.07),
    "F6": Goal(1.13, 0.047),
    "F7": Goal(0.082, 0.011),
    "F8": Goal(0.0055),  # the prototype had no pools
    "F9": Goal(0.36, 0.143),
}


def numbered() -> dict[str, FaultRecord]:
    """The faults of the corpus that have a number, in the order of the numbers."""
    found = {one.alias: one for one in read_all(EXAMPLES / "corpus") if re.fullmatch(r"F\d+", one.alias)}
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


def sights(fault: FaultRecord, seeds: Iterable[int]) -> list[Sight | None] | str:
    """When the walk of each seed sees the fault, None if it does not; a text if the subject is not here."""
    try:
        subject = find(fault.newest)()
    except (EngineError, UnknownSubject) as error:
        return str(error)
    strategy = strategy_of(subject)
    path = trace_of(fault, EXAMPLES)
    assert path is not None
    trace = load(path)
    operations = operations_of(trace, path)
    finding = finding_of(subject, config_of(trace, path), operations)
    if finding is None:
        return f"{path.name} shows nothing in {fault.newest}"
    wanted = finding.property, finding.cause
    walk(strategy, subject, 0, max_operations=2_000, seconds=SECONDS_MAX, options=WalkOptions(wanted=("", "")))
    return [first_sight(subject, strategy, wanted, operations[-1][0], seed) for seed in seeds]


def first_sight(subject: Any, strategy: Any, wanted: tuple[str, str], operation: str, seed: int) -> Sight | None:
    """When the walk of a seed sees a finding of this property and cause in this operation; None if it does not."""
    began, num_operations, num_drawn, num_runs = time.process_time(), 0, 0, 0
    while num_operations < NUM_OPERATIONS_MAX:
        options = WalkOptions(num_drawn, wanted=wanted, runs_before=num_runs)
        left = NUM_OPERATIONS_MAX - num_operations
        done = walk(strategy, subject, seed, max_operations=left, seconds=SECONDS_MAX, options=options)
        num_operations, num_drawn = num_operations + done.num_operations, num_drawn + done.num_drawn
        num_runs += done.num_runs
        if done.counterexample is None:
            return None
        if done.counterexample.operations[-1][0] == operation:
            return Sight(num_operations, time.process_time() - began)
    return None


def main(seeds: Iterable[int] = SEEDS) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    seeds, figures = list(seeds), dict[str, Any]()
    scale = figures["slowness"] = slowness(SECONDS_OF_SIGHTS)
    print(f"first sight of known faults by a walk, {len(seeds)} seeds: median, and the range")
    print(f"  goals are scaled: fixed work takes {scale:.2f} times as long as where they were measured")
    for name, fault in numbered().items():
        with get_context("spawn").Pool(1) as fresh:  # a process imports one release of vLLM
            found = fresh.apply(sights, (fault, seeds))
        if isinstance(found, str):
            print(f"  {name}  {fault.newest:<28} not measured: {found}", flush=True)
            continue
        seen = [one for one in found if one is not None]
        seconds = [one.seconds for one in seen]
        figures[name] = {"seen": len(seen), "operations": [one.num_operations for one in seen], "seconds": seconds}
        if not seen:
            print(f"  {name}  {fault.newest:<28} not seen by any in {NUM_OPERATIONS_MAX:,} operations", flush=True)
            continue
        count = statistics.median(one.num_operations for one in seen)
        middle = figures[name]["median s"] = statistics.median(seconds)
        goal = GOALS.get(name)
        of_prototype = None if goal is None else goal.seconds_of_prototype
        prototype = "" if of_prototype is None else f", prototype {scale * of_prototype:.3f}"
        wanted = "" if goal is None else f"; goal {goal.scaled(scale):.3f}{prototype}"
        print(
            f"  {name}  {fault.newest:<28} {count:>8,.0f} operations  {middle:>6.3f} CPU s "
            f"({min(seconds):.2f} to {max(seconds):.2f})  seen by {len(seen)} of {len(seeds)}{wanted}",
            flush=True,
        )
    return figures


if __name__ == "__main__":
    main()
