"""How fast the judges drive the built-in manager: operations a second of this process, every property checked.

A walk takes the time of the manager, of its adapter, of the specification beside it and of drawing; so does Hypothesis,
which adds its own. Times are of this process. Before the measured walk a short one compiles what is compiled once.
"""

import subprocess
import sys
import time

from kvproof.check.search.hypothesis_machine import drive
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin.manager import BuiltIn

NUM_OPERATIONS, NUM_EXAMPLES, NUM_STEPS = 150_000, 200, 50
ROUNDS = 3


def walked() -> float:
    """Operations a second of the walker, the best of several walks."""
    walk(MANAGERS, BuiltIn(), 0, max_operations=20_000, seconds=60)
    best = 0.0
    for seed in range(1, ROUNDS + 1):
        began = time.process_time()
        done = walk(MANAGERS, BuiltIn(), seed, max_operations=NUM_OPERATIONS, seconds=600)
        assert done.finding is None, done.finding
        best = max(best, done.num_operations / (time.process_time() - began))
    return best


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


def main() -> dict[str, float]:
    """Print the rates."""
    figures = {"operations/s": walked(), "Hypothesis steps/s": driven(), "help s": helped()}
    print("judges, on the built-in manager with every capability")
    print(f"  {figures['operations/s']:>12,.0f} operations/s  walker, in lockstep, every property checked")
    print(f"  {figures['Hypothesis steps/s']:>12,.0f} steps/s       Hypothesis, in lockstep")
    print(f"  {figures['help s']:>12.2f} s             kvproof --help")
    return figures
