"""What `kvproof prove` costs: from nothing, and with nothing changed.

The command runs twice with one cache of answers, which is empty at first. By the clock, on two processes; "CPU" is of
all processes.
"""

from __future__ import annotations

import sys
import tempfile

from benchmarks.driven import seconds_of

KVPROOF = (sys.executable, "-c", "from kvproof.check.cli import main; main()")
GOALS = {"from nothing": 20.0, "nothing changed": 2.0}  # seconds by the clock


def main() -> dict[str, tuple[float, float]]:
    """Measure and print; returns the seconds of each run: by the clock, and of the processors."""
    figures: dict[str, tuple[float, float]] = {}
    print("kvproof prove, every suite, two solver processes")
    with tempfile.TemporaryDirectory() as folder:
        for name, goal in GOALS.items():
            command = (*KVPROOF, "prove", "--jobs", "2")
            figures[name] = clock, used = seconds_of(command, {"XDG_CACHE_HOME": folder})
            print(f"  {clock:>8.1f} s, CPU {used:>6.1f} s  {name}; goal: {goal:g} s", flush=True)
    return figures
