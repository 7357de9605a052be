"""How fast the judges drive the built-in manager: operations a second of this process, every property checked.

A walk takes the time of the manager, of its adapter, of the specification beside it and of drawing; so does Hypothesis,
which adds its own. Times are of this process. Before the measured walk a short one compiles what is compiled once.
"""

import subprocess
import sys
import time
from multiprocessing import get_context

from kvproof.check.search.hypothesis_machine import drive
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.registry import find

NUM_WARMING, NUM_OPERATIONS, NUM_EXAMPLES, NUM_STEPS = 10_000, 40_000, 200, 50
ROUNDS = 3
GOALS = {  # operations a second
    "kvproof": "60,000",
    "vllm-v0==0.9.2": "1.5 times the first prototype's 28,000 to 43,000",
    "vllm-v1==0.33.0": "1.5 times the first prototype's 28,000 to 43,000",
    "sglang==0.5.23": "10,000",
}
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
        print(f"  {text}  walker on {name}; goal: {goal}", flush=True)
    figures |= {"Hypothesis steps/s": driven(), "help s": helped(), "start s": started()}
    print(f"  {figures['Hypothesis steps/s']:>12,.0f} steps/s       Hypothesis, in lockstep")
    print(f"  {figures['help s']:>12.2f} s             kvproof --help, wall time")
    print(f"  {figures['start s']:>12.2f} s             kvproof hunt to its first operation; goal: at most 1.5")
    return figures
