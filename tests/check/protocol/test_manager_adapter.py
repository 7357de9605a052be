"""What the base of adapters answers for a manager that says only yes or no."""

from typing import Any

import pytest

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Admission, Config, Pair
from kvproof.check.protocol.manager_adapter import ManagerAdapter
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS

CONFIG = Config(block_size=1, num_gpu_blocks=2, num_host_blocks=2)


class Swapping(ManagerAdapter):
    """A manager with swap that gives every sequence its blocks, and says yes or no."""

    name = "swapping"
    capabilities = Capabilities(swap=True)

    def make(self, config: Config) -> object:
        gpu, host = config.num_gpu_blocks, config.num_host_blocks
        self.pools = [*range(gpu)], [*range(gpu, gpu + host)]
        self.table: dict[int, list[int]] = {}
        return self.pools

    def _missing(self, seq: int) -> int:
        return -(-len(self.tokens[seq]) // self.config.block_size) - len(self.table.get(seq, ()))

    def _fits(self, group: int) -> bool:
        return sum(map(self._missing, self.groups[group])) <= len(self.pools[0])

    can_append = _fits

    def can_allocate(self, tokens: list[int]) -> bool:
        return -(-len(tokens) // self.config.block_size) <= len(self.pools[0])

    def append(self, seq: int, num_tokens: int) -> None:
        self.table[seq] = [*self.table.get(seq, ()), *(self.pools[0].pop() for _ in range(self._missing(seq)))]

    def allocate(self, seq: int, tokens: list[int]) -> None:
        self.append(seq, len(tokens))

    def release(self, seq: int) -> None:
        for block in self.table.pop(seq):
            self.pools[block >= self.config.num_gpu_blocks].append(block)

    def can_swap_out(self, group: int) -> Admission:
        needed = sum(len(self.table[seq]) for seq in self.groups[group])
        return Admission.OK if needed <= len(self.pools[1]) else Admission.NEVER

    def can_swap_in(self, group: int) -> Admission:
        needed = sum(len(self.table[seq]) + self._missing(seq) for seq in self.groups[group])
        if needed > self.config.num_gpu_blocks:
            return Admission.NEVER
        return Admission.OK if needed <= len(self.pools[0]) else Admission.LATER

    def _move(self, group: int, target: int) -> list[Pair]:
        pairs: list[Pair] = []
        for seq in self.groups[group]:
            before, self.table[seq] = self.table[seq], [self.pools[target].pop() for _ in self.table[seq]]
            self.pools[1 - target].extend(before)
            pairs += zip(before, self.table[seq], strict=True)
        gpu = self.config.num_gpu_blocks
        return [(one % gpu if one < gpu else one - gpu, other if other < gpu else other - gpu) for one, other in pairs]

    def swap_out(self, group: int) -> list[Pair]:
        return self._move(group, 1)

    def swap_in(self, group: int) -> list[Pair]:
        return self._move(group, 0)

    def tables(self) -> dict[int, list[int]]:
        return self.table

    def num_free(self) -> int:
        return len(self.pools[0])

    def num_free_host(self) -> int:
        return len(self.pools[1])


RUNNING: list[tuple[Any, ...]] = [("new", 1, (1,), (5,)), ("admit", 1, 1), ("run", 1)]
TOO_LONG: list[tuple[Any, ...]] = [("new", 2, (2,), (5, 6, 7)), ("admit", 2, 3)]


@pytest.mark.parametrize(
    ("before", "answer"),
    [
        pytest.param([], "NEVER", id="nothing is admitted"),
        pytest.param(RUNNING, "LATER", id="a group runs"),
        pytest.param([*RUNNING, ("swap_out", 1), ("run", 1)], "NEVER", id="the only group is swapped out"),
    ],
)
def test_a_no_to_a_prompt_means_never_unless_a_group_has_gpu_blocks(before: list[tuple[Any, ...]], answer: str) -> None:
    judge = ManagerJudge(Swapping(), CONFIG)
    for operation in [*before, *TOO_LONG]:
        assert judge.apply(operation), operation
    assert judge.answer == answer


def test_a_correct_manager_with_swap_that_says_yes_or_no_is_not_refuted() -> None:
    done = walk(MANAGERS, Swapping(), 1, max_operations=3_000, seconds=60)
    assert done.finding is None, done.finding
    assert done.coverage["begin_swap"]
