"""Collect the mappings that any manager emits for its worker in random runs.

The walker drives the manager in lockstep with the specification, in pools of the given sizes. At each step of the
worker the lists of the manager are collected, with ids that count from 0 in each pool. A run ends when the walker
refutes something. That finding is not reported here, as the walker's own stage reports it; the mappings emitted before
it are still moved.
"""

import time
from collections.abc import Callable
from random import Random

from kvproof.check.data_plane.mappings.explored import waiting
from kvproof.check.data_plane.steps.moves import Scenario, Step
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.protocol.time_limit import time_limit
from kvproof.check.search.manager_operations import ManagerOperations

RUN_LENGTH, RUNS_MAX, STEPS_MAX = 150, 200, 60
RUN_SECONDS_MAX = 10.0
# These operations move nothing, and make later operations move less.
_DISABLED = frozenset({"lookup", "reset"})


def emitted(
    name: str,
    make: Callable[[], ManagerSubject],
    seed: int,
    num_gpu_blocks: int,
    num_cpu_blocks: int,
    block_size: int,
    seconds_max: float,
) -> Scenario:
    """Up to STEPS_MAX steps that move something, from as many runs as they need; fewer if the time ends first.

    While there is no step, the time limit is doubled, because a manager may start slowly on a busy machine.
    Raises Unsupported if the manager does not support such pools, AdapterError if its adapter breaks the protocol.
    """
    subject, began = make(), time.monotonic()
    host_blocks = num_cpu_blocks if subject.capabilities.swap else 0
    config = Config(block_size=block_size, num_gpu_blocks=num_gpu_blocks, num_host_blocks=host_blocks)
    found: list[Step] = []
    for number in range(RUNS_MAX):
        left = seconds_max * (1 if found else 2) - (time.monotonic() - began)
        if len(found) >= STEPS_MAX or left <= 0:
            break
        try:
            with time_limit(min(RUN_SECONDS_MAX, left)):
                _run(subject, config, Random(f"emitted {seed} {number}"), found)
        except Finding:
            continue
    return Scenario(f"of {name}", seed, num_gpu_blocks, num_cpu_blocks, block_size, tuple(found))


def _run(subject: ManagerSubject, config: Config, random: Random, found: list[Step]) -> None:
    """One run. Appends each step to `found` after the judge has accepted it."""
    driver = ManagerOperations(subject, random, config, _DISABLED)
    for _ in range(RUN_LENGTH):
        operation = driver.draw()
        if operation is None or len(found) >= STEPS_MAX:
            return
        moves = waiting(driver.judge.worker, config.num_gpu_blocks)
        driver.judge.apply(operation)
        if operation[0] == "run" and moves.num_pairs:
            found.append(Step(moves))
