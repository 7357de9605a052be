"""How long a walk takes to see a known fault of an engine: operations and processor seconds, medians over ten seeds.

F1 to F24 are the faults of docs/findings.md that have a number. A walk ends at the first finding with the property
and the mechanism of the fault; other findings only end their run, as in a hunt that has reported them already. The
seconds are those of the walk. Before it come the import of the engine and, in a hunt, the small scopes, where some of
these faults are seen earlier. A release that was not downloaded is left out, with the command that downloads it.

The goal of F1 to F9 is half of what the walk of kvproof took at commit 1f1fd361; the others were found later, and
have none. Those seconds, and those of a first prototype with fewer features and properties, are means of two
measurements in turn with today's walk on one host. They are scaled to the host of the run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from multiprocessing import get_context
from typing import Any, NamedTuple

from benchmarks.host_speed import SECONDS_OF_SIGHTS, slowness
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.registry import find

SEEDS = range(1, 11)
NUM_OPERATIONS_MAX = 300_000
SECONDS_MAX = 600.0


class Fault(NamedTuple):
    """A known fault.

    operation: where it is seen. seconds_before, seconds_of_prototype: medians of ten seeds on the host of the goals, of
    the walk at 1f1fd361 and of the prototype; None if that did not show the fault. cause: of its finding, empty if no
    exception is its mechanism.
    """

    subject: str
    property: str
    operation: str
    seconds_before: float | None = None
    seconds_of_prototype: float | None = None
    cause: str = ""

    def goal(self, slowness: float) -> float | None:
        """The seconds in which it should be seen, on a host that takes so many times as long; None without a goal."""
        return None if self.seconds_before is None else slowness * self.seconds_before / 2


class Sight(NamedTuple):
    """A fault was seen after so many operations and processor seconds."""

    num_operations: int
    seconds: float


FAULTS = {
    "F1": Fault("vllm-v0==0.3.3", "refcount-exact", "fork", 0.13, 0.013),
    "F2": Fault("vllm-v0==0.4.2", "no-use-after-free", "admit", 0.16, 0.113),
    "F3": Fault("vllm-v0==0.5.4", "admission-sound", "swap_in", 3.07, 0.133, "swap_in NoFreeBlocksError"),
    "F4": Fault("vllm-v0==0.10.2", "admission-sound", "admit", 0.44, 0.03, "admit NoFreeBlocksError"),
    "F5": Fault("vllm-v0==0.6.4.post1", "sharing-equal", "admit", 0.227, 0.07),
    "F6": Fault("vllm-v0-generation1==0.5.5", "hit-computed", "run", 1.13, 0.047),
    "F7": Fault("vllm-v1==0.6.6.post1", "failed-call-changes-nothing", "admit", 0.082, 0.011),
    "F8": Fault("vllm-v1-pool==0.23.0", "lists-agree", "give", 0.0055, None),
    "F9": Fault("vllm-v1==0.30.0", "sharing-equal", "admit", 0.36, 0.143),
    "F10": Fault("vllm-v1==0.18.1", "sharing-equal", "admit"),
    "F11": Fault("vllm-v1==0.8.5", "window-kept", "run"),
    "F12": Fault("vllm-v1-scheduler==0.13.0", "in-flight-held", "abort"),
    "F13": Fault("vllm-v0==0.9.1", "hit-computed", "admit"),
    "F14": Fault("vllm-v1-scheduler==0.11.0", "frame-kept", "schedule"),
    "F15": Fault("vllm-v1-scheduler==0.11.0", "arrival-order", "schedule"),
    "F16": Fault("vllm-v0==0.5.0", "sharing-equal", "admit"),
    "F17": Fault("vllm-v1==0.7.0", "sharing-equal", "admit"),
    "F18": Fault("vllm-v1-scheduler==0.26.0", "total-calls", "schedule", cause="schedule AssertionError"),
    "F19": Fault("vllm-v1-scheduler==0.32.0", "running-served", "schedule"),
    "F20": Fault("vllm-v1-pool==0.33.0", "events-agree", "take"),
    "F21": Fault("sglang==0.5.23", "hit-computed", "admit"),
    "F22": Fault("vllm-v0-scheduler==0.6.6.post1", "refcount-exact", "schedule"),
    "F23": Fault("vllm-v1-scheduler==0.13.0", "total-calls", "schedule", cause="schedule AssertionError"),
    "F24": Fault("vllm-v1-scheduler==0.28.0", "admission-exact", "schedule"),
}


def sights(fault: Fault, seeds: Iterable[int]) -> list[Sight | None] | str:
    """When the walk of each seed sees the fault, None if it does not; a text if the subject is not here."""
    try:
        subject = find(fault.subject)()
    except (EngineError, UnknownSubject) as error:
        return str(error)
    strategy = strategy_of(subject)
    walk(strategy, subject, 0, max_operations=2_000, seconds=SECONDS_MAX, options=WalkOptions(wanted=("", "")))
    return [first_sight(subject, strategy, fault, seed) for seed in seeds]


def first_sight(subject: Any, strategy: Any, fault: Fault, seed: int) -> Sight | None:
    """When the walk of a seed sees the fault; None if it does not."""
    began, num_operations, num_drawn, num_runs = time.process_time(), 0, 0, 0
    while num_operations < NUM_OPERATIONS_MAX:
        options = WalkOptions(num_drawn, wanted=(fault.property, fault.cause), runs_before=num_runs)
        left = NUM_OPERATIONS_MAX - num_operations
        done = walk(strategy, subject, seed, max_operations=left, seconds=SECONDS_MAX, options=options)
        num_operations, num_drawn = num_operations + done.num_operations, num_drawn + done.num_drawn
        num_runs += done.num_runs
        if done.counterexample is None:
            return None
        if done.counterexample.operations[-1][0] == fault.operation:
            return Sight(num_operations, time.process_time() - began)
    return None


def main(seeds: Iterable[int] = SEEDS) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    seeds, figures = list(seeds), dict[str, Any]()
    scale = figures["slowness"] = slowness(SECONDS_OF_SIGHTS)
    print(f"first sight of known faults by a walk, {len(seeds)} seeds: median, and the range")
    print(f"  goals are scaled: fixed work takes {scale:.2f} times as long as where they were measured")
    for name, fault in FAULTS.items():
        with get_context("spawn").Pool(1) as fresh:  # a process imports one release of vLLM
            found = fresh.apply(sights, (fault, seeds))
        if isinstance(found, str):
            print(f"  {name}  {fault.subject:<28} not measured: {found}", flush=True)
            continue
        seen = [one for one in found if one is not None]
        seconds = [one.seconds for one in seen]
        figures[name] = {"seen": len(seen), "operations": [one.num_operations for one in seen], "seconds": seconds}
        if not seen:
            print(f"  {name}  {fault.subject:<28} not seen by any in {NUM_OPERATIONS_MAX:,} operations", flush=True)
            continue
        count = statistics.median(one.num_operations for one in seen)
        middle = figures[name]["median s"] = statistics.median(seconds)
        of_prototype, goal = fault.seconds_of_prototype, fault.goal(scale)
        prototype = "" if of_prototype is None else f", prototype {scale * of_prototype:.3f}"
        wanted = "" if goal is None else f"; goal {goal:.3f}{prototype}"
        print(
            f"  {name}  {fault.subject:<28} {count:>8,.0f} operations  {middle:>6.3f} CPU s "
            f"({min(seconds):.2f} to {max(seconds):.2f})  seen by {len(seen)} of {len(seeds)}{wanted}",
            flush=True,
        )
    return figures


if __name__ == "__main__":
    main()
