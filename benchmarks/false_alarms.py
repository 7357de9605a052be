"""The bar for false alarms: 20,000,000 operations without a finding, over subjects that are believed to be correct.

    make false-alarms
    python -m benchmarks.false_alarms [--operations N] [--slice N] [--out DIR] [SUBJECT …]

The subjects are the built-in ones, and the newest releases of engines that are not refuted. They take turns. A turn is
a walk of `--slice` operations with a seed of its own, in its own folder of DIR; it is not repeated if it has a complete
result there, so the command can be interrupted and continued. It prints the operations of each subject, and fails at
the end if there was a finding, or a subject that could not be driven.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.campaign import drive, earlier, fault, findings, folder_of, num_operations
from kvproof.check.isolation.factory import is_foreign
from kvproof.check.subjects.registry import ROWS

OPERATIONS, SLICE = 20_000_000, 50_000
BUILT_IN = tuple(row.name for row in ROWS if not is_foreign(row.name))
# The newest releases in which docs/engines.md has no finding, with the settings of FIXED.
BELIEVED_GOOD = (
    "lmdeploy==0.18.0",
    "sglang==0.5.23",
    "vllm-offload==0.33.0",
    "vllm-v1==0.33.0",
    "vllm-v1-pool==0.33.0",
    "vllm-v1-scheduler==0.33.0",
)
FIXED: dict[str, dict[str, Any]] = {  # what docs/findings.md has of these releases is left out
    "vllm-v1==0.33.0": {"drafting": False},  # with a draft model it misses hits
    "sglang==0.5.23": {"keys": 2},  # F21: a caller's key may be the id of an adapter
    "vllm-v1-pool==0.33.0": {"caching": False},  # F20: what its cache reports is not so
    # The end of a send frees what a load still writes; with the OffloadingConnector, a prompt of one token, two resets.
    "vllm-v1-scheduler==0.33.0": {"transfers": False, "connector": ""},
}


def bar(subjects: Sequence[str], operations: int, size: int, out: Path) -> tuple[Counter[str], list[str]]:
    """Walk until all subjects together did so many operations: the operations of each, and the alarms as text.

    A subject that was refuted or could not be driven takes no further turn.
    """
    counts: Counter[str] = Counter(dict.fromkeys(subjects, 0))
    alarms: list[str] = []
    turning = list(subjects)
    for seed in count(1):
        for subject in list(turning):
            if counts.total() >= operations:
                return counts, alarms
            folder = folder_of(out, subject) / str(seed)
            result = earlier(folder) or drive(subject, size, seed, folder, FIXED.get(subject))
            counts[subject] += num_operations(result)
            found = [f"{subject}, seed {seed}: {one.id}: {one.text}" for one in findings(result) if not one.excused]
            found += [f"{subject}, seed {seed}: {problem}"] if (problem := fault(result)) else []
            if found:
                alarms += found
                turning.remove(subject)
            print(f"{counts.total():,} operations; {subject}: {counts[subject]:,}, {len(found)} alarms", flush=True)
        if not turning:
            return counts, alarms
    raise AssertionError("seeds do not end")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the operations of each subject and the alarms; 1 if there was one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.false_alarms", description="The bar for false alarms.")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="instead of all that are believed to be correct")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="of all subjects together")
    parser.add_argument("--slice", type=int, default=SLICE, help="operations of one turn")
    parser.add_argument("--out", type=Path, default=Path("build/false-alarms"), help="the folder of the results")
    asked = parser.parse_args(arguments)
    counts, alarms = bar(asked.subjects or (*BUILT_IN, *BELIEVED_GOOD), asked.operations, asked.slice, asked.out)
    print("".join(f"{number:>12,}  {subject}\n" for subject, number in counts.items()), *alarms, sep="\n")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
