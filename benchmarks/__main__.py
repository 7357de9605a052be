"""Run the benchmarks that are named, or all: `python -m benchmarks [NAME …] [--json FILE]`.

Each prints under its own heading, and what it took; a table of all goals follows. They measure and do not judge: the
exit code says only whether they ran.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    driven,
    engines,
    first_sight,
    growth,
    judge_growth,
    judges,
    kv_cache,
    manager,
    pools,
    proofs,
    recording,
    searches,
    specification,
    summary,
    workers,
)
from benchmarks.host_speed import slowness

BENCHMARKS: dict[str, Callable[[], object]] = {
    "specification": specification.main,
    "judges": judges.main,
    "first_sight": first_sight.main,
    "searches": searches.main,
    "proofs": proofs.main,
    "manager": manager.main,
    "engines": engines.main,
    "growth": growth.main,
    "pools": pools.main,
    "judge_growth": judge_growth.main,
    "kv_cache": kv_cache.main,
    "recording": recording.main,
    "workers": workers.main,
}


def processor_seconds() -> float:
    """Processor time of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def main(arguments: Sequence[str] | None = None) -> None:
    """Each benchmark prints its figures; those that give them are written to FILE, too."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, side by side.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHMARKS)}; all if none is named"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write host and figures there")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    figures: dict[str, object] = {"host": driven.host()}
    costs: dict[str, tuple[float, float]] = {}
    slow: dict[str, float] = {}  # how many times as long this host takes as that of the goals, around each benchmark
    before = slowness()
    print("host: " + ", ".join(f"{name} {value}" for name, value in driven.host().items()))
    try:
        for name in asked.names or BENCHMARKS:
            print(flush=True)
            began, used = time.monotonic(), processor_seconds()
            figures[name] = BENCHMARKS[name]()
            costs[name] = time.monotonic() - began, processor_seconds() - used
            after = slowness()
            slow[name], before = (before + after) / 2, after
            print(f"{name} took {costs[name][0]:,.0f} s, CPU {costs[name][1]:,.0f} s", flush=True)
    finally:  # an interrupted run keeps what it has measured
        figures["took s"], figures["slowness"] = costs, slow
        print()
        summary.report(figures)
        if asked.json:
            asked.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
