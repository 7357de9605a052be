"""Speeds on a GPU for each block size: `python -m benchmarks.gpu_speeds [--device cuda|cpu] [--json FILE]`.

Each call moves the same bytes, in blocks of 4 to 256 tokens of one layer. kvproof's engine stands beside a gather by
index, and both beside a plain copy of as many bytes in the same direction (on CUDA `cudaMemcpyAsync` from or to pinned
memory). The comparison of bytes stands beside a plain copy and a plain read of the same memory. All are timed in turn,
in one run (see `kvproof.check.data_plane.speed`). The figures are ratios to the plain copy, and GB/s of payload.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from kvproof.check.data_plane.compare.compare import comparer_for
from kvproof.check.data_plane.executors import named
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.world import Arena
from kvproof.check.data_plane.speed.stopwatch import Stopwatch, one_thread
from kvproof.check.data_plane.speed.trial import TimedWork, Trial
from kvproof.check.data_plane.steps.moves import PoolId

TOKENS = (4, 16, 64, 256)
EXECUTORS = ("engine", "index-copy")
NUM_PLACES, READS = 2, 20
COMPARED_CALLS = (
    32  # times the bytes of one call are compared at once: on a GPU a smaller comparison measures its launch
)


def speeds_of(device: torch.device, block_size: int, call_bytes: int, seconds: float) -> list[dict[str, object]]:
    """The speeds of all moves with blocks of this many tokens, and their ratios to the plain copy of the direction."""
    token_bytes = 2 * 8 * 128 * 2  # keys and values of 8 heads of size 128, in 16 bits
    num_pairs = max(1, call_bytes // (block_size * token_bytes))
    num_blocks = 2 * num_pairs * NUM_PLACES
    geometry = Geometry(Layout.TWO_PLANES, "bfloat16", block_size, 8, 128, 1, num_blocks, num_blocks)
    load = TimedWork(geometry, tuple(named(name) for name in EXECUTORS), num_pairs, NUM_PLACES)
    trial = Trial(load, device, seed=1)
    with one_thread():
        trial.run(Stopwatch(device), seconds, lambda what: None)
    plain = {one.mapping: one.speeds() for one in trial.plain}
    return [
        {
            "tokens": block_size,
            "block bytes": geometry.block_bytes,
            "call bytes": one.num_bytes,
            "executor": one.name,
            "mapping": one.mapping,
            "GB/s": round(float(np.median(one.speeds())), 2),
            "ratio to a plain copy": round(float(np.median(one.speeds() / plain[one.reference])), 3),
        }
        for one in trial.moves
    ]


def comparison(device: torch.device, num_bytes: int) -> dict[str, float]:
    """The speed of comparing memory with its pattern, beside that of reading the same memory once, in GB/s."""
    block = Geometry(Layout.TWO_PLANES, "bfloat16", 16, 8, 128, 1, 8, 8)
    num_blocks = max(8, num_bytes // block.block_bytes)
    arena = Arena(Geometry(Layout.TWO_PLANES, "bfloat16", 16, 8, 128, 1, num_blocks, 8), PoolId.GPU, device)
    arena.fill()
    compare = partial(comparer_for(device), arena.memory, arena.labels, arena.columns)
    read = partial(torch.sum, arena.memory)
    stopwatch, seconds = Stopwatch(device), {"compare": [], "read": []}  # type: tuple[Stopwatch, dict[str, list[float]]]
    with one_thread():
        for number in range(READS + 2):
            for name, work in (("compare", compare), ("read", read)):
                lap = stopwatch.lap(work)
                if number >= 2:
                    seconds[name].append(lap)
    speeds = {name: arena.memory.nbytes / float(np.median(laps)) / 1e9 for name, laps in seconds.items()}
    return speeds | {"compare / read": speeds["compare"] / speeds["read"], "bytes": float(arena.memory.nbytes)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, and write it as JSON if that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_speeds", description="Speeds per block size.")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--call-mib", type=int, default=128, help="moved by one call")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each block size")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args(arguments)
    device, rows = torch.device(asked.device), []
    for tokens in TOKENS:
        for row in speeds_of(device, tokens, asked.call_mib * 2**20, asked.seconds):
            rows.append(row)
            print(*row.values(), sep="  ", flush=True)
    compared = comparison(device, COMPARED_CALLS * asked.call_mib * 2**20)
    print({name: round(value, 3) for name, value in compared.items()})
    if asked.json is not None:
        asked.json.write_text(json.dumps({"moves": rows, "comparison": compared}, indent=1) + "\n")


if __name__ == "__main__":
    main()
