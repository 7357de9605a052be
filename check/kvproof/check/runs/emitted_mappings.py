"""What a manager of one's own choice asks of a worker: its lists of pairs, as random runs make it emit them.

The walker drives the manager in lockstep with the specification, in pools of the sizes that are asked for; at each step
of the worker its lists are taken as they are, numbered per pool. A run ends where the walker refutes something: that is
for the walker to report, and what was emitted until then is moved all the same.
"""

from __future__ import annotations

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
# Nothing is moved for these, and what is freed or looked up leaves less that is.
_LEFT_OUT = frozenset({"lookup", "reset"})


def emitted(
    name: str,
    make: Callable[[], ManagerSubject],
    seed: int,
    num_gpu_blocks: int,
    num_cpu_blocks: int,
    block_size: int,
    seconds_max: float,
) -> Scenario:
    """Steps in which something is moved, of as many runs as it takes; fewer when the time is over first.

    As long as there is none, it may take twice the time: on a busy machine a manager takes long to begin.

    Raises Unsupported if the manager takes no such pools, AdapterError if its adapter breaks the protocol.
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
    """One run; its steps are added to `found` when the judge has accepted them."""
    driver = ManagerOperations(subject, random, config, _LEFT_OUT)
    for _ in range(RUN_LENGTH):
        operation = driver.draw()
        if operation is None or len(found) >= STEPS_MAX:
            return
        moves = waiting(driver.judge.worker, config.num_gpu_blocks)
        driver.judge.apply(operation)
        if operation[0] == "run" and moves.num_pairs:
            found.append(Step(moves))
