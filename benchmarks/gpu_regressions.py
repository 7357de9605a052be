"""Plant regressions of the data plane, and look whether `kvproof device --baseline` names these and no others.

    python3 -m benchmarks.gpu_regressions [--device cuda|cpu] --out DIR

The subject is `benchmarks/gpu_movers.py:move`. It is run and accepted as the baseline; run again unchanged with another
seed, which must change nothing; and with a quarter of its copies made twice, which must end with 6 and name slower
speeds. All runs are recorded in one history.

Exit code 0: every run ended as it must. 1: one did not; the table says which.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOVER = Path(__file__).with_name("gpu_movers.py")
HISTORY = "history.db"


@dataclass(frozen=True)
class Planted:
    """A run: what is planted, and the exit code that it must have."""

    name: str
    planted: str
    seed: int
    wanted: int


BASELINE = Planted("baseline", "", 1, 0)
RUNS = Planted("unchanged", "", 2, 0), Planted("slower", "slow", 1, 6)


def run(one: Planted, device: str, out: Path, baseline: Path | None) -> int:
    """Run `kvproof device` with this fault. Returns the exit code."""
    program = "from kvproof.check.cli import main; main()"
    command = [sys.executable, "-c", program, "device", "--device", device, "--executor", f"{MOVER}:move"]
    command += ["--layout", "two-planes", "--dtype", "bfloat16", "--seed", str(one.seed)]
    command += ["--out", str(out / one.name), "--json", str(out / f"{one.name}.json"), "--history", str(out / HISTORY)]
    command += ["--baseline", str(baseline)] if baseline is not None else []
    with (out / f"{one.name}.log").open("w") as log:
        environment = os.environ | {"PLANTED": one.planted}
        return subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT).returncode


def slower(document: Path) -> list[str]:
    """What a result says is slower than its baseline."""
    try:
        comparisons = json.loads(document.read_text())["data_plane"]["comparisons"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [f"{one['mapping']} {100 * one['change']:+.0f} %" for one in comparisons if one["is_worse"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu_regressions", description="Planted regressions.")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    num_wrong = 0
    for one in (BASELINE, *RUNS):
        baseline = None if one is BASELINE else asked.out / f"{BASELINE.name}.json"
        code = run(one, asked.device, asked.out, baseline)
        num_wrong += code != one.wanted
        named = "; ".join(slower(asked.out / f"{one.name}.json"))
        print(f"{one.name}: exit code {code}, {one.wanted} wanted{f'; slower: {named}' if named else ''}", flush=True)
    print(f"{len(RUNS) + 1 - num_wrong} of {len(RUNS) + 1} runs ended as they must")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
