"""The mappings that kvproof's block manager emits in the states that an exhaustive search reaches.

The operations of the search are explored breadth first in one small scope with swap and forks. In each new state the
lists that wait for the worker are one step. Duplicates are left out, so the result is every different set of lists that
the manager emits within TRANSITIONS_MAX transitions.
"""

from functools import lru_cache

from kvproof.check.data_plane.steps.moves import Moves, Pair, Step
from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.manager import EnabledOperations, state_key
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
