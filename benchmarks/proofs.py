"""What `kvproof prove` costs: from nothing, with nothing changed, and with one rule changed.

The command runs three times with one cache of answers, which is empty at first. The changed rule is `mark_computed`
with its assignment written twice, which proves the same. By the clock, on two processes; "CPU" is of all processes.
"""

from __future__ import annotations

import ast
import sys
import tempfile
from pathlib import Path

from benchmarks.driven import seconds_of
from kvproof.models.translation.text import specification

KVPROOF = (sys.executable, "-c", "from kvproof.check.cli import main; main()")
CHANGED, ASSIGNMENT = "mark_computed", "state.computed[block] = True"
GOALS = {"from nothing": 20.0, "nothing changed": 2.0, "one rule changed": 5.0}  # seconds by the clock


def changed_rule() -> str:
    """The text of the rule, changed. Raises LookupError if it has no such assignment any more."""
    changed = specification().edited(CHANGED, ASSIGNMENT, f"{ASSIGNMENT}; {ASSIGNMENT}")
    return ast.unparse(changed.functions[CHANGED][0])


def main() -> dict[str, tuple[float, float]]:
    """Measure and print; returns the seconds of each run: by the clock, and of the processors."""
    figures: dict[str, tuple[float, float]] = {}
    print("kvproof prove, every suite, two solver processes")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "changed.py")
        text.write_text(changed_rule(), encoding="utf-8")
        options = {"one rule changed": ("--text", str(text))}
        for name, goal in GOALS.items():
            command = (*KVPROOF, "prove", "--jobs", "2", *options.get(name, ()))
            figures[name] = clock, used = seconds_of(command, {"XDG_CACHE_HOME": folder})
            print(f"  {clock:>8.1f} s, CPU {used:>6.1f} s  {name}; goal: {goal:g} s", flush=True)
    return figures
