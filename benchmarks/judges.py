"""How fast the judges drive the built-in manager: operations a second of this process, every property checked.

A walk takes the time of the manager, of its adapter, of the specification beside it and of drawing; so does Hypothesis,
which adds its own. Times are of this process. Before the measured walk a short one compiles what is compiled once.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from benchmarks.driven import seconds_of
from kvproof.check.search.hypothesis_machine import drive
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.registry import find

NUM_WARMING, NUM_OPERATIONS, NUM_EXAMPLES, NUM_STEPS = 10_000, 40_000, 200, 50
ROUNDS = 3
PLUGIN, NUM_PYTEST_PAIRS = "kvproof", 7
GOALS = {  # operations a second; on vLLM 1.5 times the least that a first prototype did on the same releases
    "kvproof": 60_000,
    "vllm-v0==0.9.2": 42_000,
    "vllm-v1==0.33.0": 42_000,
    "sglang==0.5.23": 10_000,
}
START_MAX, PLUGIN_MAX = 1.5, 0.02  # CPU seconds
STARTING = """
import os, sys, tempfile, time
from kvproof.check.cli.app import main
from kvproof.check.subjects.builtin.manager import BuiltIn

def make(self, config):
    print(time.process_time(), file=sys.stderr, flush=True)
    os._exit(0)

BuiltIn.make = make
sys.argv = ["kvproof", "hunt", "--subject", "kvproof", "--seed", "1", "--out", tempfile.mkdtemp()]
main()
"""


def walked(name: str) -> float | None:
    """Operations a second of the walker on a subject, the best of several walks; None if the subject is not here.

    A finding does not end the walk, but only its run, as in a hunt that has reported it already.
    """
    try:
        subject = find(name)()
    except (EngineError, UnknownSubject):
        return None
    strategy, never = strategy_of(subject), WalkOptions(wanted=("", ""))
    walk(strategy, subject, 0, max_operations=NUM_WARMING, seconds=60, options=never)
    best = 0.0
    for seed in range(1, ROUNDS + 1):
        began = time.process_time()
        done = walk(strategy, subject, seed, max_operations=NUM_OPERATIONS, seconds=600, options=never)
        best = max(best, done.num_operations / (time.process_time() - began))
    return best


def started() -> float:
    """CPU seconds of a process until `kvproof hunt` has made its first built-in manager, the least of several."""
    return min(
        float(
            subprocess.run([sys.executable, "-c", STARTING], check=True, capture_output=True, text=True).stderr.split()[
                -1
            ]
        )
        for _ in range(ROUNDS)
    )


def plugged() -> float:
    """CPU seconds that kvproof's plugin adds to a run of pytest that does not use it, the median of several pairs."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing():\n    pass\n", encoding="utf-8")
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, folder)
        without = (*command, "-p", f"no:{PLUGIN}")
        seconds_of(command)
        pairs = [(seconds_of(command)[1], seconds_of(without)[1]) for _ in range(NUM_PYTEST_PAIRS)]
    return statistics.median(used - spared for used, spared in pairs)


def driven() -> float:
    """Steps a second of Hypothesis, the best of several drives."""
    best = 0.0
    for seed in range(1, ROUNDS + 1):
        began = time.process_time()
        done = drive(BuiltIn(), seed, examples=NUM_EXAMPLES, steps=NUM_STEPS)
        assert done.finding is None, done.finding
        best = max(best, done.num_operations / (time.process_time() - began))
    return best


def helped() -> float:
    """Seconds until `kvproof --help` has been printed, the best of several."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        program = "from kvproof.check.cli.app import main; main()"
        subprocess.run([sys.executable, "-c", program, "--help"], check=True, capture_output=True)
        best = min(best, time.perf_counter() - began)
    return best


def main() -> dict[str, float | None]:
    """Print the rates."""
    figures: dict[str, float | None] = {}
    print("judges, with every capability and every property; seconds are CPU seconds of the process")
    for name, goal in GOALS.items():
        with get_context("spawn").Pool(1) as fresh:  # a process imports one release of vLLM
            rate = figures[name] = fresh.apply(walked, (name,))
        text = f"{'not measured':>12}              " if rate is None else f"{rate:>12,.0f} operations/s"
        print(f"  {text}  walker on {name}; goal: {goal:,}", flush=True)
    figures |= {"Hypothesis steps/s": driven(), "help s": helped()}
    figures |= {"start s": started(), "plugin s": plugged()}
    print(f"  {figures['Hypothesis steps/s']:>12,.0f} steps/s       Hypothesis, in lockstep")
    print(f"  {figures['help s']:>12.2f} s             kvproof --help, wall time")
    start, plugin = figures["start s"], figures["plugin s"]
    print(f"  {start:>12.2f} s             kvproof hunt to its first operation; goal: at most {START_MAX}")
    print(f"  {plugin:>12.3f} s             added by the plugin to a run of pytest; goal: at most {PLUGIN_MAX}")
    return figures
