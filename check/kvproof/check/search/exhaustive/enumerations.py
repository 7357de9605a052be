"""The ghosts of a state, made anew: the holders of each block, its users in flight, and the blocks of each list.

A claim that reads a ghost says that a counter counts something: there is an enumeration, as long as the counter says,
of everything that is counted and of nothing else. If a counter is right, the enumerations made here satisfy the claim;
if it is wrong, none does. So such claims can be asked of states whose ghosts were left out. And where rules update
ghosts, each firing begins with the ghosts made here, so what is found does not depend on the path to a state.
"""

from collections.abc import Sequence

from kvproof.spec.native import Machine
from kvproof.spec.text.state import FREE, NONE, RESERVED, State


def with_ghosts(machine: Machine, state: State) -> State:
    """The state with ghosts, whether it had any or not. It shares every other field with the state that is given."""
    new = State.__new__(State)
    vars(new).update(vars(state))
    enumerate_ghosts(machine, new)
    return new


def enumerate_ghosts(machine: Machine, state: State) -> None:
    """Set the ghosts of a state, whatever they were. Beyond what is counted they name the first of its kind."""
    gpu, blocks, num_ranks = machine.sizes.num_gpu_blocks, range(machine.null), machine.names["NUM_RANKS"]
    holders = [[seq for seq, position in enumerate(state.position) if position[b] != NONE] for b in blocks]
    state.holder = [_padded(each, num_ranks) for each in holders]
    state.rank = [_places(each, len(state.position)) for each in holders]
    users = [[flight for flight, used in enumerate(state.uses) if used == b] for b in blocks]
    state.pinner = [_padded(each, num_ranks) for each in users]
    state.pin_rank, state.place = [0] * len(state.uses), [0] * len(blocks)
    for each in users:
        for rank, flight in enumerate(each):
            state.pin_rank[flight] = rank
    state.member = []
    for pool in (blocks[:gpu], blocks[gpu:]):
        lists = [[b for b in pool if state.status[b] == status] for status in range(FREE, RESERVED + 1)]
        state.member.append([_padded(each, num_ranks) for each in lists])
        for each in lists:
            for rank, b in enumerate(each):
                state.place[b] = rank


def _padded(ids: list[int], num_ranks: int) -> list[int]:
    return ids + [0] * (num_ranks - len(ids))


def _places(ids: Sequence[int], num: int) -> list[int]:
    places = [0] * num
    for rank, one in enumerate(ids):
        places[one] = rank
    return places
