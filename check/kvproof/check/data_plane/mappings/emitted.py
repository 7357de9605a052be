"""The mappings that a block manager emits for its worker.

Those of kvproof's own, in the states that an exhaustive search reaches: the operations of the search are explored
breadth first in one small scope with swap and forks. In each new state the lists that wait for the worker are one step.
Duplicates are left out, so the result is every different set of lists that the manager emits within TRANSITIONS_MAX
transitions.

Those of any manager, in random runs (`emitted`): the walker drives the manager in lockstep with the specification, in
pools of the given sizes. At each step of the worker the lists of the manager are collected, with ids that count from 0
in each pool. A run ends when the walker refutes something. That finding is reported by the walker's own stage; the
mappings emitted before it are still moved.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from random import Random

from kvproof.check.data_plane.steps.moves import Moves, Pair, Scenario, Step
from kvproof.check.hosts.time_limit import time_limit
from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.manager import EnabledOperations, state_key
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.spec.text.identity import Identities
from kvproof.spec.trace import Operation

NAMES = ("explored",)
SCOPE = Scope(num_gpu_blocks=4, num_host_blocks=4, num_seqs=2, num_tokens=3, block_size=2, swap=True)
TRANSITIONS_MAX = 600


def steps_of(num_gpu_blocks: int, num_cpu_blocks: int) -> list[Step]:
    """The steps that fit pools of these sizes."""
    return [step for step in _all_steps() if _fits(step.moves, num_gpu_blocks, num_cpu_blocks)]


@lru_cache(maxsize=1)
def _all_steps() -> tuple[Step, ...]:
    subject, identities = BuiltIn(), Identities()
    config, alphabet = SCOPE.config, EnabledOperations(SCOPE)

    def run(path: list[Operation]) -> ManagerJudge:
        judge = ManagerJudge(subject, config, identities)
        for operation in path:
            judge.apply(operation)
        return judge

    seen, found = {state_key(run([]))}, dict[Moves, None]()
    frontier: list[list[Operation]] = [[]]
    num_transitions = 0
    for path in frontier:  # the loop appends to it
        for operation in list(alphabet.enabled(run(path))):
            judge = run([*path, operation])
            num_transitions += 1
            if num_transitions > TRANSITIONS_MAX:
                return tuple(Step(moves) for moves in found)
            if (form := state_key(judge)) not in seen:
                seen.add(form)
                frontier.append([*path, operation])
                found.setdefault(waiting(judge.worker, SCOPE.num_gpu_blocks))
    return tuple(Step(moves) for moves in found)


def waiting(worker: Worker, first_host: int) -> Moves:
    """The lists that wait for the worker, with ids that count from 0 in each pool. Duplicate copies are merged.

    first_host: the id of the first host block, which is the number of GPU blocks.
    """
    return Moves(
        tuple((source - first_host, target) for source, target in worker.swap_in),
        tuple((source, target - first_host) for source, target in worker.swap_out),
        tuple(dict.fromkeys(worker.copies)),
    )


def _fits(moves: Moves, num_gpu_blocks: int, num_cpu_blocks: int) -> bool:
    def within(pairs: tuple[Pair, ...], num_sources: int, num_targets: int) -> bool:
        return all(source < num_sources and target < num_targets for source, target in pairs)

    return (
        within(moves.swap_in, num_cpu_blocks, num_gpu_blocks)
        and within(moves.swap_out, num_gpu_blocks, num_cpu_blocks)
        and within(moves.copy, num_gpu_blocks, num_gpu_blocks)
    )


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
) -> tuple[Scenario, list[Counterexample]]:
    """Up to STEPS_MAX steps that move something, from as many runs as they need; fewer if the time ends first.

    The runs that ended with a finding come with them.
    While there is no step, the time limit is doubled, because a manager may start slowly on a busy machine.
    Raises Unsupported if the manager does not support such pools, AdapterError if its adapter breaks the protocol.
    """
    subject, began = make(), time.monotonic()
    host_blocks = num_cpu_blocks if capabilities_of(subject).swap else 0
    config = Config(block_size=block_size, num_gpu_blocks=num_gpu_blocks, num_host_blocks=host_blocks)
    found, refuting = list[Step](), list[Counterexample]()
    for number in range(RUNS_MAX):
        left = seconds_max * (1 if found else 2) - (time.monotonic() - began)
        if len(found) >= STEPS_MAX or left <= 0:
            break
        operations: list[Operation] = []
        try:
            with time_limit(min(RUN_SECONDS_MAX, left)):
                _run(subject, config, Random(f"emitted {seed} {number}"), operations, found)
        except Finding as finding:
            refuting.append(Counterexample(config, operations, finding))
    return Scenario(f"of {name}", seed, num_gpu_blocks, num_cpu_blocks, block_size, tuple(found)), refuting


def _run(
    subject: ManagerSubject, config: Config, random: Random, operations: list[Operation], found: list[Step]
) -> None:
    """One run. Appends each operation to `operations`, and each step to `found` after the judge has accepted it."""
    driver = ManagerOperations(subject, random, config, _DISABLED)
    for _ in range(RUN_LENGTH):
        operation = driver.draw()
        if operation is None or len(found) >= STEPS_MAX:
            return
        moves = waiting(driver.judge.worker, config.num_gpu_blocks)
        operations.append(operation)
        driver.judge.apply(operation)
        if operation[0] == "run" and moves.num_pairs:
            found.append(Step(moves))
