"""The judge of faults in code that moves bytes: a short `kvproof device` of an executor of kvproof's, on the CPU.

The executor runs in a process of its own, which imports `kvproof.impl` from the copy with the fault. It moves every
kind of mapping in every layout, and all bytes are compared after each step. The operations that are counted are the
pairs of blocks that were moved.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

EXECUTORS = ("kv-store",)
SECONDS_MAX = 600.0
BLOCKS, HOST_BLOCKS, BLOCK_SIZE = 24, 20, 4
SEED = 1


class NotRun(Exception):
    """The executor could not be run in a process of its own; the text is the last line that it wrote."""


@dataclass(frozen=True)
class Compared:
    """What a comparison found. property_id: the kind of the finding; empty if every byte was right."""

    property_id: str
    text: str
    num_operations: int


def compare_bytes(executor: str, folder: str) -> Compared:
    """Run an executor with the code in this folder first on the path. Raises NotRun."""
    path = os.pathsep.join((folder, *filter(None, sys.path)))
    command = [sys.executable, "-m", "kvproof.audit.faults.bytes_judge", executor]
    environment = os.environ | {"PYTHONPATH": path}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise NotRun(f"{executor} did not end within {SECONDS_MAX:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotRun(f"{executor}: {lines[-1]}")
    return Compared(**json.loads(done.stdout.splitlines()[-1]))


def _compared(name: str) -> Compared:
    """Move every kind of mapping in every layout, until something is wrong."""
    import torch

    from kvproof.check.data_plane.executors import named
    from kvproof.check.data_plane.mappings import KINDS, scenario
    from kvproof.check.data_plane.memory.layouts import Geometry, Layout
    from kvproof.check.data_plane.run.harness import run_case

    num_pairs = 0
    for layout in Layout:
        num_heads = 1 if layout is Layout.LATENT else 2
        geometry = Geometry(layout, "float16", BLOCK_SIZE, num_heads, 16, 2, BLOCKS, HOST_BLOCKS)
        for kind in KINDS:
            moves = scenario(kind, SEED, BLOCKS, HOST_BLOCKS, BLOCK_SIZE)
            case = run_case(named(name), geometry, moves, torch.device("cpu"))
            num_pairs += case.num_pairs
            if case.finding is not None:
                return Compared(case.finding.kind.value, case.finding.text, num_pairs)
    return Compared("", "", num_pairs)


if __name__ == "__main__":
    print(json.dumps(asdict(_compared(sys.argv[1]))))
