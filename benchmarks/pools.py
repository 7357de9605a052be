"""How the cost of judging an operation grows with the pool, from 16 to 16,384 blocks.

At each level the built-in subject is driven with equally many groups, requests or holders, and with prompts of the same
lengths, in pools of different sizes. The table shows microseconds of CPU per operation of walker, judge and
subject together, complete comparisons included, and the exponent e of the best fit cost = c * blocks^e. Opening a pool
is not counted: it is linear in the blocks, and happens once in a run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from benchmarks.growth import SIZES, exponent
from kvproof.check.oracle.manager.judge import SearchLimits
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search.random_walk import Parts
from kvproof.check.search.strategies import STRATEGIES
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

EXPONENT_MAX = 0.2
BLOCK_SIZE, NUM_AT_A_TIME, NUM_TOKENS_MAX = 4, 4, 12  # so that 16 blocks suffice
SUBJECTS = {"manager": "kvproof", "scheduler": "kvproof-scheduler", "pool": "kvproof-pool"}


def config_of(level: str, num_blocks: int) -> Config:
    """The configuration of a level with so many blocks."""
    if level == "pool":
        return PoolConfig(num_gpu_blocks=num_blocks, caching=True)
    if level == "scheduler":
        return SchedulerConfig(BLOCK_SIZE, num_blocks, caching=True, max_num_seqs=NUM_AT_A_TIME)
    return Config(BLOCK_SIZE, num_blocks, caching=True)


def microseconds(level: str, num_blocks: int, num_operations: int, seed: int) -> float:
    """CPU time for each operation of one run."""
    config, operations = config_of(level, num_blocks), list[Operation]()
    run: Any = STRATEGIES[level].generator(find(SUBJECTS[level])(), Random(seed), config, frozenset())
    if level == "manager":
        run.judge.limits = SearchLimits(NUM_AT_A_TIME, 2 * NUM_TOKENS_MAX, 2)
    run.num_requests_max = run.num_holders_max = NUM_AT_A_TIME
    run.longest, run.chunk_max = 4, NUM_TOKENS_MAX
    if level != "pool":
        run.prompts.length_max, run.prompts.is_large = NUM_TOKENS_MAX, False
    parts = Parts(run.judge, config, operations, lambda: None)
    run.pause = parts.end
    began = time.process_time()
    run.run(operations, num_operations)
    parts.end_run()
    return (time.process_time() - began) * 1e6 / len(operations)


def main(sizes: Sequence[int] = SIZES, num_operations: int = 4_000, num_seeds: int = 5) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    print("microseconds of CPU per operation by blocks of the pool")
    print(f"  {'':<12}" + "".join(f"{size:>10,}" for size in sizes) + f"{'exponent':>10}")
    found: dict[str, Any] = {}
    for level in SUBJECTS:
        seeds = range(1, num_seeds + 1)
        curve = {
            size: statistics.median(microseconds(level, size, num_operations, seed) for seed in seeds) for size in sizes
        }
        found[level] = {"microseconds": curve, "exponent": exponent(curve)}
        state = "met" if found[level]["exponent"] <= EXPONENT_MAX else "missed"
        cells = "".join(f"{cost:>10.1f}" for cost in curve.values())
        print(f"  {level:<12}{cells}{found[level]['exponent']:>10.2f}  at most {EXPONENT_MAX}: {state}", flush=True)
    return found
